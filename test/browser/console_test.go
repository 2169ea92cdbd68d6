package browser

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/chromedp/chromedp"
	"github.com/chromedp/chromedp/kb"

	"saltern/test/lab"
)

// TestConsole has somebody do a day's work at the console, in a browser: nothing on its
// console, nothing from elsewhere, every page as axe-core wants it, wide and narrow.
func TestConsole(t *testing.T) {
	t.Parallel()
	axe := axe(t)
	s := start(t, "web1.example.com", "  console: true\n",
		map[string]string{
			"top.sls":      "base: {'*': [broken]}\n",
			"broken.sls":   broken,
			"web/init.sls": "nginx:\n  pkg.installed: []\n",
		})

	b := open(t, s.base+"/console", 1280, 800)
	b.see("/", "#username")
	b.accessible(axe, "log-in")
	b.real("node-login", "/", "#username", 1280)
	b.do("log in", typed("#username", "alice"), typed("#password", "right"),
		click(`form.login button[type=submit]`), there(`nav[aria-label="Pages"]`))
	b.has("alice (admin)")

	b.see("/keys", `input[name=id]`)
	b.picture("keys-1280")
	b.do("mark the key and accept it", click(`input[name=id]`), click(`button[value=accept]`),
		there(`code.finger`), there(`main form[method=post] button.main`))
	b.accessible(axe, "confirm")
	b.has(s.finger(t))
	b.do("confirm", click(`main form[method=post] button[type=submit]`), there(`.notice`))
	b.has("1 key accepted.")
	s.Ping(t, 90*time.Second, "web1.example.com")

	b.see("/run", "#fun")
	b.do("preview", typed("#tgt", "web*"), typed("#fun", "test.ping"), click(`button[name=look]`), there(`.names`))
	b.has("selects 1 minion")
	b.accessible(axe, "preview")
	b.do("run", click(`form.run button.main`), there("#live"))
	b.has("True")

	b.see("/run", "#fun")
	b.do("highstate", typed("#tgt", "*"), typed("#fun", "state.apply"), click(`form.run button.main`), there("#live"))
	b.has("1 failed")
	why := get[string](b, `document.querySelector("details.failed[open]").innerText`)
	if !strings.Contains(why, "the web server is not there") {
		t.Errorf("the state that failed says %q", why)
	}

	b.picture("job-1280")
	b.see("/audit", "table")
	b.picture("audit-1280")
	b.clean("up to the highstate")

	pages := map[string]string{
		"/":                                "main h1",
		"/keys":                            ".tabs",
		"/minions":                         "table",
		"/minion?id=web1.example.com":      "table",
		"/jobs":                            "table",
		"/jobs?failed=1":                   "table",
		"/fleet":                           "svg.trend",
		"/run":                             "#fun",
		"/run?kind=orchestration":          "#sls",
		"/run?kind=runner":                 "#fun",
		"/run?kind=wheel":                  "#fun",
		"/schedule":                        "main h1",
		"/events":                          "#events",
		"/files":                           ".files",
		"/file?env=base&path=web/init.sls": "pre.file",
		"/pillar?id=web1.example.com":      "table",
		"/diff":                            "#ref",
		"/audit":                           "table",
		"/tokens":                          "table",
		"/tokens/confirm?user=alice":       "form.login",
	}

	for path, wait := range pages {
		b.see(path, wait)
		b.accessible(axe, path)
		b.clean(path)
	}

	b.see("/audit?kind=key.*", "table")
	b.has("key.accept")
	b.has("sharedsecret, with a token")
	b.see("/files", ".files")
	b.picture("files-1280")
	b.reals(1280)
	b.see("/events?tag=my/*", "#events")
	b.has("Listening to all events with the tag my/*.")
	lab.Eventually(t, time.Minute, "an event, live", func() error {
		s.minion.Call(t, "event.send", "my/event", `{"x": "<b>"}`)
		return b.try(3*time.Second, there(`#events li`))
	})

	b.accessible(axe, "events that came")
	b.clean("events")
	narrow(t, axe, s, pages)
}

// real holds pages of the node itself against their pictures: those on which nothing but the
// version at the foot depends on the day, the address or the build.
func (b *tab) real(name, path, wait string, wide int64) {
	b.t.Helper()
	b.see(path, wait)
	if name == "node-events" {
		b.has("Listening to all events")
	}
	get[string](b, `document.querySelector("footer").style.visibility = "hidden"`)
	b.golden(name, wide)
}

// reals are such pages, but for the log-in.
func (b *tab) reals(wide int64) {
	b.t.Helper()
	b.real("node-file", "/file?env=base&path=web/init.sls", "pre.file", wide)
	b.real("node-events", "/events?tag=my/*", "#events", wide)
}

// finger is the fingerprint of the minion's own key.
func (s site) finger(t *testing.T) string {
	t.Helper()
	f, _ := s.minion.Call(t, "--local", "key.finger").(string)
	return f
}

// narrow has somebody log in and run a job on a small screen with nothing but a keyboard,
// and holds that no page is wider than the screen.
func narrow(t *testing.T, axe string, s site, pages map[string]string) {
	b := open(t, s.base+"/console", 390, 844)
	b.see("/", "#username")
	b.real("node-login", "/", "#username", 390)
	b.see("/", "#username")
	b.do("log in by keyboard", chromedp.KeyEvent("alice"+kb.Tab+"right"+kb.Enter), there("#menu"))
	b.tabTo("document.activeElement.id == 'menu'")
	b.do("open the menu", chromedp.KeyEvent(kb.Enter), there("#pages"))
	b.press("Run")
	b.do("the form", there("#fun"))
	b.tabTo("document.activeElement.id == 'tgt'")
	b.do("type", chromedp.KeyEvent("web*"))
	b.tabTo("document.activeElement.id == 'fun'")
	b.do("type", chromedp.KeyEvent("test.ping"))
	b.tabTo("document.activeElement.matches('button.main')")
	b.do("run", chromedp.KeyEvent(kb.Enter), there("#live"))
	b.has("True")
	b.clean("keyboard")

	for path, wait := range pages {
		b.see(path, wait)
		b.accessible(axe, path+" at 390 pixels")
		if wide := get[int](b, `document.documentElement.scrollWidth`); wide > 390 {
			t.Errorf("%s is %d pixels wide", path, wide)
		}
		b.clean(path + " at 390 pixels")
	}

	b.reals(390)
	for path, name := range map[string]string{
		"/audit":                      "audit-390",
		"/":                           "overview-390",
		"/files":                      "files-390",
		"/pillar?id=web1.example.com": "pillar-390",
	} {
		b.see(path, pages[path])
		b.picture(name)
	}
}

// tabTo presses Tab until what has the focus is what is wanted.
func (b *tab) tabTo(wanted string) {
	b.t.Helper()
	for range 60 {
		b.do("press Tab", chromedp.KeyEvent(kb.Tab))
		if get[bool](b, wanted) {
			return
		}
	}
	b.t.Fatalf("the focus never reaches %s", wanted)
}

// press follows a link by the keyboard.
func (b *tab) press(link string) {
	b.t.Helper()
	b.tabTo(fmt.Sprintf("document.activeElement.tagName == 'A' && document.activeElement.textContent == %q", link))
	b.do("press Enter", chromedp.KeyEvent(kb.Enter))
}

// TestNotes holds that what the tests look for is found where it is.
func TestNotes(t *testing.T) {
	t.Parallel()
	axe := axe(t)
	b := open(t, "http://127.0.0.1:1", 1280, 800)
	b.do("open a page",
		chromedp.Navigate(`data:text/html,<title>x</title><img src="x"><script>console.error("wrong"); fetch("http://127.0.0.2:1/").catch(() => 0); throw new Error("thrown")</script>`))
	lab.Eventually(t, time.Minute, "what is wrong with the page", func() error {
		b.mu.Lock()
		defer b.mu.Unlock()
		if all := strings.Join(b.faults, "; "); !strings.Contains(all, "wrong") ||
			!strings.Contains(all, "thrown") || !slices.Contains(b.asked, "http://127.0.0.2:1/") {
			return fmt.Errorf("%q, asked %q", b.faults, b.asked)
		}
		return nil
	})

	if found := b.violations(axe); !slices.ContainsFunc(found, func(v violation) bool { return v.ID == "image-alt" }) {
		t.Errorf("axe-core finds %+v", found)
	}
}
