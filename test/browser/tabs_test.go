package browser

import (
	"fmt"
	"testing"
	"time"

	"github.com/chromedp/chromedp"
)

// seen tells a page that it is looked at, or hidden behind another tab: Chromium without a
// screen shows all of its tabs.
func (b *tab) seen(yes bool) {
	b.t.Helper()
	get[bool](b,
		fmt.Sprintf(`Object.defineProperty(document, 'hidden', { configurable: true, get: () => %t }) && document.dispatchEvent(new Event('visibilitychange'))`,
			!yes))
}

// TestManyTabs (F3): a browser with ten pages of events open at a site without TLS, where it has
// six connections, goes on to load pages; those that are hidden listen again when they are
// looked at. Pages can open WebSockets beside app (F5).
func TestManyTabs(t *testing.T) {
	t.Parallel()
	s := start(t, "web1", "  console: true\n  app: /etc/hostname\n", nil)
	b := open(t, s.base+"/console", 1280, 800)
	b.see("/", "#username")
	b.do("log in", typed("#username", "alice"), typed("#password", "right"),
		click(`form.login button[type=submit]`), there(`nav[aria-label="Pages"]`))

	var tabs []*tab
	for range 10 {
		ctx, end := chromedp.NewContext(b.ctx)
		t.Cleanup(end)
		x := &tab{t: t, ctx: ctx, base: b.base}
		if err := chromedp.Do(ctx); err != nil { // as with the first tab: without a deadline
			t.Fatal(err)
		}

		if err := x.try(20*time.Second, visit(b.base+"/events"), there("#events")); err != nil {
			t.Fatalf("tab %d: %v", len(tabs), err)
		}

		x.has("Listening to ")
		x.seen(false)
		tabs = append(tabs, x)
	}

	b.see("/jobs", "main h1")
	tabs[0].seen(true)
	tabs[0].has("Listening again to ")

	opened := get[string](b, `(async () => {
		const headers = { Accept: 'application/json', 'Content-Type': 'application/json' };
		const res = await fetch('/login', { method: 'POST', headers, body: JSON.stringify({ username: 'alice', password: 'right', eauth: 'sharedsecret' }) });
		const socket = new WebSocket(location.origin.replace('http', 'ws') + '/ws/' + res.headers.get('X-Auth-Token'));
		return new Promise((done) => {
			socket.onopen = () => done('open');
			socket.onclose = (e) => done('closed ' + e.code);
		});
	})()`)
	if opened != "open" {
		t.Errorf("a WebSocket of a page: %s", opened)
	}
}
