// What is live on the console's pages. All text from events is set as text.
'use strict';

(() => {
  const live = document.getElementById('live');
  if (live && live.dataset.stream) follow(live);
  const list = document.getElementById('events');
  if (list) show(list);

  for (const all of document.querySelectorAll('input[data-marks]')) markAll(all);

  // markAll has a box mark and unmark all boxes of its form that have the name in data-marks.
  function markAll(all) {
    const boxes = [...all.form.querySelectorAll('input[type=checkbox]')].filter((b) => b.name === all.dataset.marks);
    function follow() {
      const n = boxes.filter((b) => b.checked).length;
      all.checked = n > 0 && n === boxes.length;
      all.indeterminate = n > 0 && n < boxes.length;
    }
    all.parentElement.hidden = false;
    all.addEventListener('change', () => boxes.forEach((b) => { b.checked = all.checked; }));
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
      source.onerror = error || null;
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
      ended() { return over || (source !== null && source.readyState === EventSource.CLOSED); },
    };
  }

  // multiplexed says whether the page came by a protocol that has room for any number of
  // streams in one connection.
  function multiplexed() {
    const [page] = performance.getEntriesByType('navigation');
    return Boolean(page) && ['h2', 'h3'].includes(page.nextHopProtocol);
  }

  // follow reads the page anew when something came for it, and takes over its live part.
  function follow(live) {
    let timer = 0, busy = false, again = false;
    async function refresh() {
      if (busy) { again = true; return; }
      busy = true;
      again = false;
      try {
        const res = await fetch(location.href, { credentials: 'same-origin', redirect: 'error' });
        const page = new DOMParser().parseFromString(await res.text(), 'text/html');
        const fresh = page.getElementById('live');
        if (res.ok && fresh) {
          const open = new Set([...live.querySelectorAll('details')].map((d, i) => (d.open ? i : -1)));
          const same = fresh.querySelectorAll('details').length === live.querySelectorAll('details').length;
          live.replaceChildren(...document.adoptNode(fresh).childNodes);
          if (same) live.querySelectorAll('details').forEach((d, i) => { d.open = open.has(i); });
          if (!fresh.dataset.stream) stream.end();
        }
      } catch (e) { /* the next event tries again */ }
      busy = false;
      if (again) soon();
    }
    function soon() {
      if (!timer) timer = setTimeout(() => { timer = 0; refresh(); }, 400);
    }
    const stream = listen(live.dataset.stream, { open: soon, message: soon }); // at its beginning: something may have come before
    const slow = setInterval(() => {
      if (stream.ended()) clearInterval(slow);
      else if (!document.hidden) soon();
    }, 30000);
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
        say(hidden ? 'Listening again. What happened while the page was hidden is not shown.' : 'Listening.');
        hidden = false;
      },
      error() { say('The connection was lost; trying again.'); },
      hide() { hidden = true; },
      message: arrived,
    });
    function arrived(m) {
      if (paused) { missed++; return; }
      const e = JSON.parse(m.data);
      const item = document.createElement('li'), more = document.createElement('details');
      const head = document.createElement('summary'), tag = document.createElement('code'), at = document.createElement('span'), body = document.createElement('pre');
      tag.textContent = e.tag;
      at.textContent = (e.data && e.data._stamp) || '';
      at.className = 'time';
      body.textContent = e.cut ? 'The event has ' + e.cut + ' bytes, which is too much for this page.' : JSON.stringify(e.data, null, 2);
      body.tabIndex = 0;
      head.append(tag, ' ', at);
      more.append(head, body);
      item.append(more);
      list.prepend(item);
      while (list.children.length > most) list.lastChild.remove();
    }
  }
})();
