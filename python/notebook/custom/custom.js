// SPDX-License-Identifier: Apache-2.0
// In each page of the classic Jupyter of `reclaim notebook`: what the owner of the machine does, and when the notebook
// ends for want of work. The coordinator answers .reclaim/state, also while the notebook itself is nowhere.
define(['base/js/namespace', 'base/js/events'], function (Jupyter, events) {
  'use strict';
  var base = document.body.getAttribute('data-base-url') || '/';
  var lookMs = 2000;
  var autosaveMs = 15000;
  var known = {epoch: null, hasSaved: false, savedAt: null, idleEnds: null, state: null};

  var bar = document.createElement('div');
  bar.id = 'reclaim-notice';
  bar.setAttribute('role', 'status');
  bar.setAttribute('aria-live', 'polite');
  bar.style.cssText = 'display:none;position:fixed;left:0;right:0;bottom:0;z-index:10000;padding:8px 16px;' +
    'background:#fff3cd;color:#332701;border-top:2px solid #b58105;font:14px/1.5 sans-serif';
  document.body.appendChild(bar);

  function show(text) {
    if (bar.textContent !== text) bar.textContent = text;
    bar.style.display = text ? 'block' : 'none';
  }

  function clock(wallMs) {
    return new Date(wallMs).toLocaleTimeString();
  }

  // Asked of the page once for each notice; an open notebook only. Two saves at a time would find each other's file
  // changed on the disk, and ask what to do.
  function save() {
    var notebook = Jupyter.notebook;
    if (!notebook || known.hasSaved) return;
    known.hasSaved = true;
    known.savedAt = null;
    Promise.resolve(notebook.save_notebook()).then(function () {
      known.savedAt = Date.now();
      if (known.state.is_noticed) tell(known.state);
    }, function () {
      known.hasSaved = false;
    });
  }

  function comeBack() {
    var notebook = Jupyter.notebook;
    if (!notebook || !notebook.dirty) {
      window.location.reload();
      return;
    }
    show('The notebook runs elsewhere now, with the files of its last save. What you typed since then is in this ' +
      'page alone: save it (Ctrl-S), then reload.');
  }

  function tell(state) {
    known.state = state;
    if (state.is_noticed) {
      known.epoch = known.epoch || state.epoch; // a page that was opened meanwhile
      save();
      var words = 'The owner takes this machine back';
      if (state.deadline_wall_ms > 0) {
        var offset = Date.now() - state.now_wall_ms;
        words += ' at ' + clock(state.deadline_wall_ms + offset);
      }
      words += state.message ? ' (' + state.message + ').' : '.';
      words += known.savedAt ? ' Saved at ' + clock(known.savedAt) + '.' : ' Saving.';
      return show(words + ' The notebook goes on elsewhere at this same address. Variables in memory do not: ' +
        '%reclaim_save NAMES keeps them.');
    }
    known.hasSaved = false;
    if (state.state !== 'running') {
      return show('The notebook moves: ' + state.why);
    }
    if (known.epoch !== null && known.epoch !== state.epoch) return whenItAnswers(comeBack);
    known.epoch = state.epoch;
    show(known.idleEnds ? 'Nobody works here: the notebook ends at ' + clock(known.idleEnds * 1000) +
      ', unless something is run.' : '');
  }

  function whenItAnswers(then) {
    show('The notebook is back, and starts.');
    fetch(base + 'api', {cache: 'no-store'}).then(function (answer) {
      if (answer.ok) then();
    }, function () {});
  }

  function look() {
    fetch(base + '.reclaim/state', {cache: 'no-store', headers: {Accept: 'application/json'}}).then(function (answer) {
      if (answer.status === 401 || answer.status === 403) {
        show('This browser\'s session has ended: `reclaim notebook` prints an address that begins another one.');
        return null;
      }
      return answer.ok ? answer.json().then(tell) : null;
    }).catch(function () {
      show('There is no connection to the site: it is tried again.');
    }).then(function () {
      window.setTimeout(look, lookMs);
    });
  }

  function lookAtIdleness() {
    fetch(base + 'custom/reclaim-idle.json', {cache: 'no-store'}).then(function (answer) {
      return answer.ok ? answer.json() : {ends_unix: null};
    }).then(function (found) {
      known.idleEnds = found.ends_unix;
    }).catch(function () {}).then(function () {
      window.setTimeout(lookAtIdleness, 5 * lookMs);
    });
  }

  function saveOften() {
    if (Jupyter.notebook) Jupyter.notebook.set_autosave_interval(autosaveMs);
  }
  events.on('notebook_loaded.Notebook', saveOften);
  saveOften();
  look();
  lookAtIdleness();
});
