// What is live on the console's pages. All text from events is set as text.
'use strict';

(() => {
  let ahead = Date.now() - Date.parse(document.body.dataset.now);
  setInterval(() => { if (!document.hidden) ages(); }, 10000);
  const live = document.getElementById('live');
  if (live && live.dataset.stream) follow(live);
  const task = document.getElementById('task');
  if (task) followTask(task);
  const list = document.getElementById('events');
  if (list) show(list);

  const menu = document.getElementById('menu');
  if (menu) fold(menu);

  for (const all of document.querySelectorAll('input[data-marks]')) markAll(all);
  for (const form of document.querySelectorAll('form[role=search]')) foldSearch(form);

  // foldSearch puts a button before a form of several fields, with which narrow screens show it (see console.css).
  function foldSearch(form) {
    if (form.querySelectorAll('input:not([type=hidden]), select').length < 3) return;
    const asked = [...new URLSearchParams(location.search)].some(([name, text]) => text && form.elements[name]);
    const filled = [...form.querySelectorAll('input:not([type])')].some((field) => field.value && field.name !== 'columns');
    const button = document.createElement('button');
    button.type = 'button';
    button.className = 'unfold';
    button.textContent = asked || filled ? 'Filter: set' : 'Filter: none';
    form.id = 'filter';
    button.setAttribute('aria-controls', form.id);
    function set(open) {
      form.classList.toggle('folded', !open);
      button.setAttribute('aria-expanded', String(open));
    }
    button.addEventListener('click', () => set(form.classList.contains('folded')));
    form.before(button);
    set(false);
  }

  // fold opens and closes the pages' links, which narrow screens hide behind the button (see console.css).
  function fold(menu) {
    const header = menu.closest('header');
    function set(open) {
      header.classList.toggle('open', open);
      menu.setAttribute('aria-expanded', String(open));
      menu.textContent = open ? 'Close' : 'Menu';
    }
    menu.addEventListener('click', () => set(!header.classList.contains('open')));
    header.addEventListener('keydown', (e) => {
      if (e.key !== 'Escape' || !header.classList.contains('open')) return;
      set(false);
      menu.focus();
    });
  }

  // markAll has a box mark and unmark all boxes of its form that have the name in data-marks. What is done to
  // those that are marked waits for the first one.
  function markAll(all) {
    const boxes = [...all.form.querySelectorAll('input[type=checkbox]')].filter((b) => b.name === all.dataset.marks);
    function follow() {
      const n = boxes.filter((b) => b.checked).length;
      all.checked = n > 0 && n === boxes.length;
      all.indeterminate = n > 0 && n < boxes.length;
      for (const act of all.form.querySelectorAll('button[name=do]')) act.disabled = n === 0;
    }
    all.parentElement.hidden = false;
    all.addEventListener('change', () => {
      for (const b of boxes) b.checked = all.checked;
      follow();
    });
    for (const b of boxes) b.addEventListener('change', follow);
    follow(); // a browser that went back keeps the marks
  }

  // listen keeps a stream open while its page can be seen. Browsers open six connections to a
  // site by HTTP/1, for all pages together: a stream in each of seven tabs, and no page of
  // the site comes any more. With always it stays open; hide is called when it does not.
  function listen(address, { open, message, error, hide, always }) {
    let source = null, over = false;
    function start() {
      if (source || over) return;
      source = new EventSource(address);
      source.onopen = open;
      source.onmessage = message;
      source.onerror = failed;
    }
    // failed tries again half a minute after an answer such as 503, for which browsers give up; all
    // else they try again themselves.
    function failed() {
      if (error) error();
      if (!source || source.readyState !== EventSource.CLOSED) return;
      stop();
      setTimeout(() => { if (!document.hidden || always) start(); }, 30000 + Math.random() * 5000);
    }
    function stop() {
      if (source) source.close();
      source = null;
    }
    document.addEventListener('visibilitychange', () => {
      if (!document.hidden) start();
      else if (!always && source) { stop(); if (hide) hide(); }
    });
    if (!document.hidden || always) start();
    return {
      end() { over = true; stop(); },
      ended() { return over; },
    };
  }

  // multiplexed says whether the page came by a protocol that has room for any number of
  // streams in one connection.
  function multiplexed() {
    const [page] = performance.getEntriesByType('navigation');
    return Boolean(page) && ['h2', 'h3'].includes(page.nextHopProtocol);
  }

  // follow reads the page anew when something came for it, and takes over its live part: soon
  // after an event, then every data-pace milliseconds for a minute, since what the event began
  // goes on, and else every half minute. A page without data-pace is read 3, 9 and 21 seconds after
  // an event as well: its node may store a return seconds after another node has told of it.
  function follow(live) {
    const pace = Number(live.dataset.pace) || 0, busyFor = 60000;
    let timer = 0, busy = false, again = false, until = 0, shown = textOf(live);
    // textOf leaves out the words for times, which are kept fresh elsewhere.
    function textOf(at) { return at.innerHTML.replace(/>[^<>]*<\/time>/g, '></time>'); }
    async function refresh() {
      if (busy) { again = true; return; }
      busy = true;
      again = false;
      try {
        const res = await fetch(location.href, { credentials: 'same-origin', redirect: 'error' });
        const page = new DOMParser().parseFromString(await res.text(), 'text/html');
        const fresh = page.getElementById('live');
        if (res.ok && fresh) {
          const ends = !fresh.dataset.stream, text = textOf(fresh);
          ahead = Date.now() - Date.parse(page.body.dataset.now);
          tellAge(page);
          if (text !== shown) replace(fresh);
          shown = text;
          if (ends) { stream.end(); tellFresh(false); }
        }
      } catch (e) { /* the next event tries again */ }
      busy = false;
      if (again) soon();
    }
    // replace keeps what the user has opened, ticked and focused.
    function replace(fresh) {
      const all = (at, what) => [...at.querySelectorAll(what)];
      const open = all(live, 'details').map((d) => d.open), ticked = new Set(all(live, 'input:checked').map((i) => i.name + '=' + i.value));
      const same = open.length === all(fresh, 'details').length;
      const name = (e) => e.tagName + (e.getAttribute('href') || e.value || e.textContent);
      const focused = live.contains(document.activeElement) ? name(document.activeElement) : '';
      live.replaceChildren(...document.adoptNode(fresh).childNodes);
      if (same) all(live, 'details').forEach((d, i) => { d.open = open[i]; });
      all(live, 'input[type=checkbox]').forEach((i) => { if (ticked.has(i.name + '=' + i.value)) i.checked = true; });
      if (focused) {
        const back = all(live, 'a, button, input, select, summary, [tabindex]').find((e) => name(e) === focused);
        if (back) back.focus({ preventScroll: true });
      }
    }
    // soon spreads the pages of many browsers, which all have the same event, over the pace.
    function soon() {
      if (!timer) timer = setTimeout(() => { timer = 0; refresh(); }, 400 + Math.random() * pace);
    }
    // tellAge says in the footer of which time the page is.
    function tellAge(page) {
      document.getElementById('asof').textContent = page.getElementById('asof').textContent;
    }
    // tellFresh says there whether the page refreshes itself.
    function tellFresh(is) {
      document.getElementById('fresh').hidden = !is;
      const stale = document.getElementById('stale');
      if (stale) stale.hidden = is;
    }
    tellFresh(true);
    let next = Date.now() + 30000, wait = 30000;
    function arrived() {
      if (!pace || Date.now() >= until) soon();
      until = Date.now() + busyFor;
      wait = 3000;
      next = Math.min(next, Date.now() + (pace || wait));
    }
    const state = document.createElement('p');
    state.className = 'problem';
    state.setAttribute('role', 'status');
    state.hidden = true;
    live.before(state);
    function say(text) { state.textContent = text; state.hidden = !text; }
    const stream = listen(live.dataset.stream, {
      open() { say(''); soon(); }, // something may have come before
      message: arrived,
      error() { say('Not live: the connection to the master was lost. The page tries again.'); },
    });
    const ticks = setInterval(() => {
      if (stream.ended()) { clearInterval(ticks); return; }
      if (document.hidden || Date.now() < next) return;
      soon();
      wait = Math.min(2 * wait, 30000);
      next = Date.now() + (!pace ? wait : Date.now() < until ? pace : 30000);
    }, 1000);
  }

  // agoWords has the words of the master for a time that is so many milliseconds ago.
  function agoWords(ago) {
    const s = Math.abs(ago) / 1000, whole = (unit) => Math.floor(s / unit + 0.5);
    let span = Math.max(2, Math.trunc(s / 86400)) + ' days';
    if (s < 59.5) span = whole(1) + ' s';
    else if (s < 3570) span = whole(60) + ' min';
    else if (s < 171000) span = whole(3600) + ' h';
    if (s < 10) return 'just now';
    return ago < 0 ? 'in ' + span : span + ' ago';
  }

  // whenWords has the words of the master for a time at now: past an hour the time of day in UTC before them.
  function whenWords(now, at) {
    const ago = agoWords(now - at);
    if (Math.abs(now - at) < 3600000) return ago;
    const today = new Date(now), then = new Date(at), text = then.toISOString();
    let clock = text.slice(11, 16);
    if (then.getUTCFullYear() !== today.getUTCFullYear()) clock = text.slice(0, 10) + ' ' + clock;
    else if (text.slice(0, 10) !== today.toISOString().slice(0, 10)) {
      clock = then.getUTCDate() + ' ' + then.toLocaleString('en', { month: 'short', timeZone: 'UTC' }) + ' ' + clock;
    }
    return clock.replaceAll(' ', '\u00a0') + ' (' + ago.replaceAll(' ', '\u00a0') + ')';
  }

  // ages keeps the words for times fresh. ahead is how far the browser's clock is ahead of the master's.
  function ages() {
    const now = Date.now() - ahead;
    for (const t of document.querySelectorAll('time[datetime]')) {
      const at = Date.parse(t.dateTime), text = t.className === 'ago' ? agoWords(now - at) : whenWords(now, at);
      if (t.textContent !== text) t.textContent = text;
    }
  }

  // followTask lists the steps of a run on the master as they are told of, and reloads the page when
  // the run has ended.
  function followTask(task) {
    const steps = document.getElementById('steps'), most = 500;
    const number = new URL(task.dataset.stream, location.href).searchParams.get('run');
    let checking = false;
    async function check() {
      if (checking) return;
      checking = true;
      try {
        const res = await fetch(location.href, { credentials: 'same-origin', redirect: 'error' });
        const page = new DOMParser().parseFromString(await res.text(), 'text/html');
        if (res.ok && !page.getElementById('task')) location.reload();
      } catch (e) { /* the next event or look tries again */ }
      checking = false;
    }
    function add(text, bad) {
      const item = document.createElement('li');
      item.textContent = text;
      if (bad) item.className = 'failed';
      steps.append(item);
      while (steps.children.length > most) steps.firstChild.remove();
    }
    listen(task.dataset.stream, {
      open: check, // it may have ended before
      message(m) {
        const e = JSON.parse(m.data), data = e.data || {}, ret = data.ret || data.data && data.data.ret;
        if (e.tag === 'salt/run/' + number + '/ret' || e.tag.startsWith('salt/wheel/')) setTimeout(check, 300);
        else if (e.tag.includes('/prog/') && ret) add((ret.result === false ? 'Failed: ' : 'Done: ') + (ret.__id__ || ret.name), ret.result === false);
        else if (e.tag.endsWith('/args')) add('Began: ' + data.name + (data.tgt ? ' on ' + data.tgt : ''));
      },
    });
    setInterval(() => { if (!document.hidden) check(); }, 15000);
  }

  // show lists events as they come.
  function show(list) {
    const state = document.getElementById('state'), pause = document.getElementById('pause');
    const most = 200;
    let paused = false, missed = 0;
    pause.hidden = false;
    pause.addEventListener('click', () => {
      paused = !paused;
      pause.textContent = paused ? 'Go on' : 'Pause';
      if (!paused && missed) { say(missed + ' events were not shown while it was paused.'); missed = 0; }
    });
    function say(text) { state.textContent = text; }
    let hidden = false;
    listen(list.dataset.stream, {
      always: multiplexed(),
      open() {
        const after = hidden ? ' What happened while the page was hidden is not shown.' : '';
        say((hidden ? 'Listening again to ' : 'Listening to ') + list.dataset.of + '.' + after);
        hidden = false;
      },
      error() { say('The connection was lost; trying again.'); },
      hide() { hidden = true; },
      message: arrived,
    });
    // jobLink returns a link to the page of the job that the tag names, for whoever may see jobs.
    function jobLink(tag) {
      const [, jid] = /^salt\/job\/(\d{20})\//.exec(tag) || [];
      if (!jid || !list.dataset.job) return [];
      const link = document.createElement('a');
      link.href = list.dataset.job + jid;
      link.textContent = 'The page of job ' + jid;
      return [link];
    }
    function arrived(m) {
      if (paused) { missed++; return; }
      const e = JSON.parse(m.data);
      const item = document.createElement('li'), more = document.createElement('details');
      const head = document.createElement('summary'), tag = document.createElement('code'), at = document.createElement('span'), body = document.createElement('pre');
      tag.textContent = e.tag;
      at.textContent = String((e.data && e.data._stamp) || '').replace('T', ' ').replace(/\.\d+$/, '');
      at.className = 'time';
      body.textContent = e.cut ? 'The event has ' + e.cut + ' bytes, which is too much for this page.' : JSON.stringify(e.data, null, 2);
      body.tabIndex = 0;
      head.append(tag, ' ', at);
      more.append(head, ...jobLink(e.tag), body);
      item.append(more);
      list.prepend(item);
      while (list.children.length > most) list.lastChild.remove();
    }
  }
})();
