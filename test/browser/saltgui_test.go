package browser

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/chromedp/cdproto/page"
	"github.com/chromedp/chromedp"

	"saltern/test/lab"
)

// saltGUI copies SaltGUI, whose folder SALTERN_SALTGUI names, and gives what
// rest_cherrypy needs to serve it.
func saltGUI(t *testing.T, minions ...string) map[string]any {
	t.Helper()
	dir := os.Getenv("SALTERN_SALTGUI")
	if _, err := os.Stat(filepath.Join(dir, "index.html")); dir == "" || err != nil {
		t.Fatalf("there is no SaltGUI at %q: make test-saltgui SALTGUI=DIR, with the folder saltgui of https://github.com/erwindon/SaltGUI",
			dir)
	}

	app := lab.Dir(t)
	if err := os.CopyFS(app, os.DirFS(dir)); err != nil {
		t.Fatal(err)
	}

	// Files that somebody may put there; without them each is a fault in the browser's console.
	lab.WriteTree(t, app,
		map[string]string{
			"static/salt-auth.txt":  "sharedsecret\n",
			"static/salt-motd.txt":  "\n",
			"static/salt-motd.html": "\n",
			"static/minions.txt":    strings.Join(minions, " true\n") + " true\n",
		})

	return map[string]any{
		"app":         app + "/index.html",
		"app_path":    "/app",
		"static":      app + "/static",
		"static_path": "/static",
	}
}

// watched tells on each page that is loaded how many answers it waits for, and which
// stream of events it has: SaltGUI itself keeps both to itself.
const watched = `(() => {
	const fetched = window.fetch;
	window.awaited = 0;
	window.fetch = (...args) => { window.awaited++; return fetched(...args).finally(() => window.awaited--); };
	window.EventSource = class extends EventSource { constructor(...args) { super(...args); window.stream = this; } };
})()`

// openGUI opens a browser and logs in at SaltGUI as somebody with all rights.
func openGUI(t *testing.T, base string, minions ...string) *tab {
	t.Helper()
	return openGUIAs(t, base, "alice", minions...)
}

func openGUIAs(t *testing.T, base, user string, minions ...string) *tab {
	t.Helper()
	b := browse(t, base, 1280, 800)
	if _, err := chromedp.Call(b.ctx, page.AddScriptToEvaluateOnNewDocument,
		page.AddScriptToEvaluateOnNewDocumentParams{Source: watched}); err != nil {
		t.Fatal(err)
	}

	b.see("/app", "#login-button")
	b.has("sharedsecret")
	get[string](b, `document.querySelector("select").value = "sharedsecret"`)
	b.do("log in", typed("#username", user), typed("#password", "right"), click("#login-button"))

	for _, id := range minions {
		b.has(id)
	}

	b.answered("log-in")
	b.clean("log-in")
	return b
}

// answered waits until all that the page has asked for is there.
func (b *tab) answered(page string) {
	b.t.Helper()
	still := 0
	lab.Eventually(b.t, time.Minute, page+" has its answers", func() error {
		n := get[int](b, `window.awaited`)
		still++
		if n != 0 {
			still = 0
		}
		if still < 3 {
			return fmt.Errorf("it waits for %d", n)
		}
		return nil
	})
}

// guiTree has one file, not even a top file beside it: SaltGUI's page of orchestrations fails with
// several, since it sorts them as if they were words.
var guiTree = map[string]string{"deploy.sls": "ask:\n  salt.function:\n    - name: test.ping\n    - tgt: '*'\n"}

// The pages of SaltGUI, but for those of a minion or a job.
var guiPages = []string{"minions", "grains", "pillars", "mine", "beacons", "schedules", "nodegroups", "keys",
	"jobs", "highstate", "orchestrations", "templates", "reactors", "issues", "options", "quickview",
	"events"}

// named are those pages on which each minion is named.
var named = []string{"minions", "grains", "pillars", "mine", "beacons", "schedules", "keys", "highstate"}

// tour looks at all pages, ends with that of the events, and holds that nothing goes
// wrong in the browser.
func (b *tab) tour(round string, minions ...string) {
	b.t.Helper()
	for _, page := range guiPages {
		b.gui(round, page, "")
		for _, id := range minions {
			if slices.Contains(named, page) {
				b.has(id)
			}
		}

		switch page {
		case "orchestrations":
			b.has("test.ping")
		case "grains", "pillars", "mine", "beacons", "schedules":
			for _, id := range minions {
				b.gui(round, page+"-minion", "?minionid="+id)
				b.has(id)
			}
		case "jobs":
			id := get[string](b, `document.querySelector("#page-jobs").innerText.match(/\b\d{20}\b/)?.[0] || ""`)
			if id == "" {
				b.t.Fatalf("no job on the page of jobs: %s",
					get[string](b, `document.querySelector("#page-jobs").innerText`))
			}
			b.gui(round, "job", "?id="+id)
			b.has("done, ")
		}
	}
}

// gui looks at a page of SaltGUI as its menu does, without loading SaltGUI again: that opens
// another stream of events, and a browser has six connections to a site.
func (b *tab) gui(round, page, query string) {
	b.t.Helper()
	where := strings.TrimSpace(round + " " + page + query)
	get[bool](b,
		fmt.Sprintf(`history.pushState({}, "", "/app%s#%s"); dispatchEvent(new PopStateEvent("popstate"))`,
			query, page))
	b.do(where, there("#page-"+page))
	b.answered(where)
	b.picture("saltgui-" + page)
	b.clean(where)
}

// startGUI makes a site whose salt-api serves SaltGUI, with one minion.
func startGUI(t *testing.T, id string) site {
	t.Helper()
	section := ""
	for k, v := range saltGUI(t, id) {
		section += fmt.Sprintf("  %s: %v\n", k, v)
	}
	s := start(t, id, section, guiTree)
	if r := s.Key(t, "-A", "-y"); r.Code != 0 {
		t.Fatalf("%+v", r)
	}
	s.Ping(t, 90*time.Second, id)
	return s
}

// TestSaltGUI has SaltGUI log in at the salt-api of one node and show its pages: nothing
// may go wrong in the browser.
func TestSaltGUI(t *testing.T) {
	const id = "web1.example.com"
	s := startGUI(t, id)
	b := openGUI(t, s.base, id)
	b.tour("", id)
}

// TestSaltGUIOperator has an operator, who may do all on some minions, use SaltGUI: he sees
// the progress of the command that he runs, and on the page of events his own, and not what
// others do.
func TestSaltGUIOperator(t *testing.T) {
	const id = "web1.example.com"
	s := startGUI(t, id)
	b := openGUIAs(t, s.base, "otto", id)
	b.gui("", "events", "")
	b.plays()

	if r := s.Salt(t, id, "test.arg", "by-root"); r.Code != 0 {
		t.Fatalf("%+v", r)
	}

	b.do("run a command", click("#button-manual-run"), typed("#target", "web*"),
		typed("#command", "test.arg by-otto"), click("#run-command"))
	lab.Eventually(t, time.Minute, "the command's return", func() error {
		text := get[string](b, `document.querySelector("#popup-run-command").innerText`)
		if !strings.Contains(text, id) || !strings.Contains(text, "by-otto") || strings.Contains(text, "Waiting") {
			return fmt.Errorf("%s", text)
		}
		return nil
	})

	events := func() string { return get[string](b, `document.querySelector("#page-events").innerText`) }
	lab.Eventually(t, time.Minute, "the return on the page of events", func() error {
		if text := events(); !strings.Contains(text, "/ret/"+id) {
			return fmt.Errorf("%s", text)
		}
		return nil
	})

	if text := events(); strings.Contains(text, "by-root") {
		t.Errorf("the events of another: %s", text)
	}
}
