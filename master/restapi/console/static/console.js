// What is live on the console's pages. All text from events is set as text.
'use strict';

(() => {
  const live = document.getElementById('live');
  if (live && live.dataset.stream) follow(live);
  const list = document.getElementById('events');
  if (list) show(list);

  // follow reads the page anew when something came for it, and takes over its live part.
  function follow(live) {
    const source = new EventSource(live.dataset.stream);
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
          if (!fresh.dataset.stream) source.close();
        }
      } catch (e) { /* the next event tries again */ }
      busy = false;
      if (again) soon();
    }
    function soon() {
      if (!timer) timer = setTimeout(() => { timer = 0; refresh(); }, 400);
    }
    source.onmessage = soon;
    source.onopen = soon; // something may have come before
    const slow = setInterval(() => (source.readyState === 2 ? clearInterval(slow) : soon()), 30000);
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
    const source = new EventSource(list.dataset.stream);
    source.onopen = () => say('Listening.');
    source.onerror = () => say('The connection was lost; trying again.');
    source.onmessage = (m) => {
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
    };
  }
})();
