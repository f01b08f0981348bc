# SPDX-License-Identifier: Apache-2.0
# /etc/ipython/ipython_config.py of the image of `reclaim notebook`: every kernel has %reclaim_save and %reclaim_load.
c.InteractiveShellApp.extensions = ["reclaimnet.magics"]  # noqa: F821 - given by IPython
