-- SPDX-License-Identifier: Apache-2.0
-- A database of schema version 1 as the coordinator wrote it, dumped: for the test that it is taken
-- over. Not to be changed: it is what sites have on their disks.
BEGIN TRANSACTION;
CREATE TABLE attempts (
  job TEXT NOT NULL,
  epoch_generation INTEGER NOT NULL,
  epoch_attempt INTEGER NOT NULL,
  node TEXT NOT NULL,
  state TEXT NOT NULL,
  body TEXT NOT NULL,
  PRIMARY KEY (job, epoch_generation, epoch_attempt)
) STRICT;
INSERT INTO "attempts" VALUES('j-1',1,1,'n-1','running','{"attempt":{"detail":"","end":"none","ended_wall_ms":0,"epoch":"1.1","exit_code":0,"job":"j-1","leased_wall_ms":0,"node":"n-1","placed_because":"","resumed_generation":0,"started_wall_ms":0,"state":"running"},"granted_cpu_milli":0,"is_tail_open":false,"last_seq":0,"last_step":-1,"safe_generation":0}');
CREATE TABLE events (
  seq INTEGER PRIMARY KEY,
  kind TEXT NOT NULL,
  job TEXT NOT NULL,
  node TEXT NOT NULL,
  user TEXT NOT NULL,
  at_wall_ms INTEGER NOT NULL,
  body TEXT NOT NULL,
  hash BLOB NOT NULL
) STRICT;
INSERT INTO "events" VALUES(1,'job.submitted','j-1','','',1700000000000,'{"at_wall_ms":1700000000000,"data":{},"epoch":"0.0","job":"j-1","kind":"job.submitted","lab":"","message":"something happened","node":"","user":""}',X'6F246A29EE6553CF19460853F7B4B444915B930AFC8C83932BA22C85991F69CB');
INSERT INTO "events" VALUES(2,'job.started','j-1','','',1700000000000,'{"at_wall_ms":1700000000000,"data":{},"epoch":"0.0","job":"j-1","kind":"job.started","lab":"","message":"something happened","node":"","user":""}',X'77C62ABA5F575360AB82DC746B743FBD50080AF80A14F9CDCEC1C588B2006A0B');
CREATE TABLE generations (
  job TEXT NOT NULL,
  generation INTEGER NOT NULL,
  manifest BLOB NOT NULL,
  body TEXT NOT NULL,
  PRIMARY KEY (job, generation)
) STRICT;
CREATE TABLE images (name TEXT PRIMARY KEY, digest TEXT NOT NULL, body TEXT NOT NULL) STRICT;
INSERT INTO "images" VALUES('base','sha256:aa','{"added_by":"","added_wall_ms":0,"base":"","blobs":[],"bytes":0,"digest":"sha256:aa","layers":[],"name":"base"}');
CREATE TABLE jobs (
  id TEXT PRIMARY KEY,
  number INTEGER NOT NULL UNIQUE,
  state TEXT NOT NULL,
  is_finished INTEGER NOT NULL,
  owner TEXT NOT NULL,
  lab TEXT NOT NULL,
  epoch_generation INTEGER NOT NULL,
  epoch_attempt INTEGER NOT NULL,
  submitted_wall_ms INTEGER NOT NULL,
  wrapped_key BLOB NOT NULL,
  body TEXT NOT NULL
) STRICT;
INSERT INTO "jobs" VALUES('j-1',1,'running',0,'ann','lab-a',1,1,0,X'010203','{"avoid":"","home":"","idempotency_key":"","is_displaced":false,"is_fallback":false,"is_going_home":false,"job":{"displacements":0,"durable":{"bytes":0,"created_wall_ms":0,"epoch":"0.0","generation":0,"job":"","manifest":"0000000000000000000000000000000000000000000000000000000000000000","new_bytes":0,"snapshot_boot_ns":0,"step":-1},"epoch":"1.1","exit_code":0,"finished_wall_ms":0,"id":"j-1","image_digest":"","is_degraded":false,"lab":"lab-a","node":"n-1","number":1,"outputs":"0000000000000000000000000000000000000000000000000000000000000000","owner":"ann","previous":{"bytes":0,"created_wall_ms":0,"epoch":"0.0","generation":0,"job":"","manifest":"0000000000000000000000000000000000000000000000000000000000000000","new_bytes":0,"snapshot_boot_ns":0,"step":-1},"reason":"","restarts":0,"spec":{"checkpoint":{"complete_marker":"","copies":1,"destinations":[],"is_stateless":false,"min_interval_s":0,"outputs":[],"paths":[],"quiet_ms":3000,"signal":"auto","temporary":[]},"command":["true"],"env":{},"image":"base","max_duration_s":0,"max_restarts":20,"name":"","notice_s":0,"only_labs":[],"orphan_limit_s":1800,"peers":[],"priority":4,"resources":{"compute_capability_min":"","cpu_milli":1000,"cpu_milli_min":100,"disk_mib":2048,"gpu_memory_mib":0,"gpus":0,"memory_mib":1024},"work_dir":"/work","workspace":"0000000000000000000000000000000000000000000000000000000000000000"},"started_wall_ms":0,"state":"running","submitted_wall_ms":0},"not_before_wall_ms":0,"queued_wall_ms":0,"stop_deadline_ms":0,"stop_end":"none","stop_reason":"","stop_saves_first":false,"wrapped_key":""}');
CREATE TABLE meta (key TEXT PRIMARY KEY, value TEXT NOT NULL) STRICT, WITHOUT ROWID;
INSERT INTO "meta" VALUES('generation','1');
INSERT INTO "meta" VALUES('store.chain_head','2:77c62aba5f575360ab82dc746b743fbd50080af80a14f9cdcec1c588b2006a0b');
CREATE TABLE nodes (id TEXT PRIMARY KEY, lab TEXT NOT NULL, state TEXT NOT NULL, body TEXT NOT NULL) STRICT;
INSERT INTO "nodes" VALUES('n-1','lab-a','up','{"address":{"api":"","peer":""},"boot_id":"boot-1","box_key":"0000000000000000000000000000000000000000000000000000000000000000","contract":{"allow_images":[],"allow_labs":[],"allow_users":[],"gpus":[],"guest_cpu_each_milli":0,"guest_cpu_milli":0,"guest_disk_mib":10240,"guest_memory_mib":0,"holidays":[],"idle":{"foreign_vram_mib":0,"idle_minutes":0},"lends":true,"max_drain_s":600,"max_guests":16,"max_pids":512,"min_free_s":0,"network":[],"notice_s":60,"orphan_limit_s":1800,"own_lab_first":true,"reserve_disk_mib":2048,"store_mib":20480,"time_zone":"UTC","uplink_bps_evacuation":0,"uplink_bps_normal":0,"windows":[]},"facts":{"cgroup_version":"","cpu_milli":4000,"disk_mib":0,"engine":"","failure_domain":"","gpus":[],"has_user_namespaces":false,"hostname":"host-n-1","images":[],"kernel":"","memory_mib":0,"uplink_bps":0,"warnings":[]},"history":{"announced":2,"emergency":8,"exposure_s":360000,"lost":2,"notice":30},"is_revoked":false,"joined_wall_ms":1789913600000,"lab":"lab-a","last_seen_wall_ms":1790000000000,"machine_id":"m-n-1","node":"n-1","public_key":"0000000000000000000000000000000000000000000000000000000000000000","state":"up","verify_key":"0000000000000000000000000000000000000000000000000000000000000000","version":""}');
INSERT INTO "nodes" VALUES('n-2','lab-b','up','{"address":{"api":"","peer":""},"boot_id":"boot-1","box_key":"0000000000000000000000000000000000000000000000000000000000000000","contract":{"allow_images":[],"allow_labs":[],"allow_users":[],"gpus":[],"guest_cpu_each_milli":0,"guest_cpu_milli":0,"guest_disk_mib":10240,"guest_memory_mib":0,"holidays":[],"idle":{"foreign_vram_mib":0,"idle_minutes":0},"lends":true,"max_drain_s":600,"max_guests":16,"max_pids":512,"min_free_s":0,"network":[],"notice_s":60,"orphan_limit_s":1800,"own_lab_first":true,"reserve_disk_mib":2048,"store_mib":20480,"time_zone":"UTC","uplink_bps_evacuation":0,"uplink_bps_normal":0,"windows":[]},"facts":{"cgroup_version":"","cpu_milli":4000,"disk_mib":0,"engine":"","failure_domain":"","gpus":[],"has_user_namespaces":false,"hostname":"host-n-2","images":[],"kernel":"","memory_mib":0,"uplink_bps":0,"warnings":[]},"history":{"announced":1,"emergency":0,"exposure_s":3600000,"lost":0,"notice":1},"is_revoked":false,"joined_wall_ms":1789913600000,"lab":"lab-b","last_seen_wall_ms":1790000000000,"machine_id":"m-n-2","node":"n-2","public_key":"0000000000000000000000000000000000000000000000000000000000000000","state":"up","verify_key":"0000000000000000000000000000000000000000000000000000000000000000","version":""}');
CREATE TABLE outputs (
  job TEXT NOT NULL,
  epoch_generation INTEGER NOT NULL,
  epoch_attempt INTEGER NOT NULL,
  listing BLOB NOT NULL,
  body TEXT NOT NULL,
  PRIMARY KEY (job, epoch_generation, epoch_attempt)
) STRICT;
CREATE TABLE reclaims (
  node TEXT NOT NULL,
  id TEXT NOT NULL,
  kind TEXT NOT NULL,
  phase TEXT NOT NULL,
  reported_wall_ms INTEGER NOT NULL,
  body TEXT NOT NULL,
  PRIMARY KEY (node, id)
) STRICT;
INSERT INTO "reclaims" VALUES('n-1','r-1','notice','returned',0,'{"record":{"boot_id":"","cleared_ns":0,"cut_ns":0,"deadline_ns":0,"declared_ns":0,"declared_wall_ms":1789996400000,"gpus":[],"id":"r-1","killed_ns":0,"kind":"notice","message":"","node":"n-1","phase":"returned","processes_killed":0,"remains":[],"returned_ns":0},"reported_wall_ms":0}');
CREATE TABLE rollups (
  node TEXT NOT NULL,
  bucket_wall_ms INTEGER NOT NULL,
  body TEXT NOT NULL,
  PRIMARY KEY (node, bucket_wall_ms)
) STRICT;
INSERT INTO "rollups" VALUES('n-1',1789999700000,'{"bucket_s":300,"bucket_wall_ms":1789999700000,"cpu_percent":40.0,"disk_free_mib_min":0,"gpus":[{"index":0,"memory_used_mib":0.0,"memory_used_mib_max":0,"power_mw":0.0,"temperature_c_max":0,"utilisation_percent":80.0}],"guests":0.0,"lending_share":0.0,"memory_used_mib":0.0,"memory_used_mib_max":0,"node":"n-1","samples":60}');
CREATE TABLE rollups_gpu (
  node TEXT NOT NULL,
  gpu INTEGER NOT NULL,
  bucket_wall_ms INTEGER NOT NULL,
  utilisation_percent REAL NOT NULL,
  memory_used_mib REAL NOT NULL,
  power_mw REAL NOT NULL,
  temperature_c_max INTEGER NOT NULL,
  PRIMARY KEY (node, gpu, bucket_wall_ms)
) STRICT;
INSERT INTO "rollups_gpu" VALUES('n-1',0,1789999700000,80.0,0.0,0.0,0);
CREATE TABLE tokens (
  id TEXT PRIMARY KEY,
  secret_hash BLOB NOT NULL UNIQUE,
  kind TEXT NOT NULL,
  expires_wall_ms INTEGER NOT NULL,
  body TEXT NOT NULL
) STRICT;
CREATE TABLE usage (
  user TEXT NOT NULL,
  lab TEXT NOT NULL,
  body TEXT NOT NULL,
  PRIMARY KEY (user, lab)
) STRICT;
INSERT INTO "usage" VALUES('ann','lab-a','{"as_of_wall_ms":1790000000000,"lab":"lab-a","lent_gpu_s":0.0,"used_gpu_s":1.5,"user":"ann"}');
CREATE TABLE users (id TEXT PRIMARY KEY, lab TEXT NOT NULL, role TEXT NOT NULL, body TEXT NOT NULL) STRICT;
INSERT INTO "users" VALUES('ann','lab-a','user','{"created_wall_ms":0,"lab":"lab-a","role":"user","user":"ann"}');
CREATE INDEX jobs_by_state ON jobs (is_finished, number);
CREATE INDEX jobs_by_owner ON jobs (owner, number);
CREATE INDEX reclaims_by_time ON reclaims (reported_wall_ms);
CREATE INDEX events_by_job ON events (job, seq);
CREATE INDEX events_by_node ON events (node, seq);
CREATE TRIGGER events_are_not_changed BEFORE UPDATE ON events
  BEGIN SELECT RAISE(ABORT, 'events are append-only'); END;
CREATE TRIGGER events_are_not_removed BEFORE DELETE ON events
  BEGIN SELECT RAISE(ABORT, 'events are append-only'); END;
PRAGMA user_version=1;
COMMIT;
