package browser

import (
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"testing"
	"time"

	"github.com/chromedp/chromedp"

	"saltern/test/lab"
)

// TestSaltGUI has SaltGUI, whose folder SALTERN_SALTGUI names, log in at salt-api and
// show its pages: nothing may go wrong in the browser.
func TestSaltGUI(t *testing.T) {
	dir := os.Getenv("SALTERN_SALTGUI")
	if _, err := os.Stat(filepath.Join(dir, "index.html")); dir == "" || err != nil {
		t.Fatalf("there is no SaltGUI at %q: make test-saltgui SALTGUI=DIR, with the folder saltgui of https://github.com/erwindon/SaltGUI", dir)
	}
	app := lab.Dir(t)
	if err := os.CopyFS(app, os.DirFS(dir)); err != nil {
		t.Fatal(err)
	}
	// Files that somebody may put there; without them each is a fault in the browser's console.
	lab.WriteTree(t, app, map[string]string{"static/salt-auth.txt": "sharedsecret\n", "static/salt-motd.txt": "\n", "static/salt-motd.html": "\n", "static/minions.txt": "web1.example.com true\n"})
	s := start(t, "web1.example.com", fmt.Sprintf("  app: %s/index.html\n  app_path: /app\n  static: %[1]s/static\n  static_path: /static\n", app))
	b := open(t, s.base, 1280, 800)
	b.see("/app", "#login-button")
	b.has("sharedsecret")
	get[string](b, `document.querySelector("select").value = "sharedsecret"`)
	b.do("log in", typed("#username", "alice"), typed("#password", "right"),
		click("#login-button"))
	b.has("web1.example.com")
	b.clean("log-in")
	for _, page := range []string{"keys", "minions", "jobs", "events"} {
		b.do(page, chromedp.Navigate(s.base+"/app#"+page), there("#page-"+page))
		if page == "keys" || page == "minions" {
			b.has("web1.example.com")
		}
		b.picture("saltgui-" + page)
		b.clean(page)
	}
	b.stays(t, s)
}

// stays holds that the page of events goes on for as many minutes as SALTERN_MINUTES
// says: longer than sessions of CherryPy last is what people do.
func (b *tab) stays(t *testing.T, s site) {
	minutes, _ := strconv.Atoi(os.Getenv("SALTERN_MINUTES"))
	if minutes > 0 { // it is paused at first
		get[bool](b, `[...document.querySelectorAll("#page-events .small-button-for-click")].filter(e => e.innerText.startsWith("\u2bc8")).map(e => e.click()).length > 0`)
	}
	for i := range minutes {
		tag := fmt.Sprintf("still/here/%d", i)
		if r := s.SaltRun(t, "event.send", tag); r.Code != 0 {
			t.Fatalf("%s: %+v", tag, r)
		}
		b.has(tag)
		b.clean(tag)
		t.Logf("%d minutes; the page's heap has %d kB", i, int(get[float64](b, "performance.memory.usedJSHeapSize")/1024))
		time.Sleep(time.Minute)
	}
	if minutes > 0 { // and the log-in is still good for what asks anew
		b.do("keys", chromedp.Navigate(b.base+"/app#keys"), there("#page-keys"))
		b.has("web1.example.com")
		b.clean("keys after it")
	}
}
