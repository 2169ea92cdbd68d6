package browser

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/chromedp/cdproto/emulation"
	"github.com/chromedp/chromedp"

	"saltern/test/lab"
)

// colours makes a page light or dark.
func (b *tab) colours(scheme string) {
	b.t.Helper()
	media := emulation.SetEmulatedMediaParams{Features: []*emulation.MediaFeature{{
		Name:  "prefers-color-scheme",
		Value: scheme,
	}}}
	if _, err := chromedp.Call(b.ctx, emulation.SetEmulatedMedia, media); err != nil {
		b.t.Fatal(err)
	}
}

// hasNot holds that a text is not on the page.
func (b *tab) hasNot(unwanted string) {
	b.t.Helper()
	if s := get[string](b, shown); strings.Contains(s, unwanted) {
		b.t.Errorf("%q is on the page: %.2000s", unwanted, s)
	}
}

// TestFleetAtWork: an administrator, an operator and a viewer do what the pages Fleet, Minions and Jobs are for:
// see what failed, where and since when, follow a job and stop it; each sees what he may do and nothing else.
func TestFleetAtWork(t *testing.T) {
	t.Parallel()
	axe := axe(t)
	s := start(t, "web1.example.com", "  console: true\n", map[string]string{
		"top.sls":    "base: {'*': [broken]}\n",
		"broken.sls": broken,
	})

	b := open(t, s.base+"/console", 1280, 900)
	b.logIn("alice")
	for _, path := range []string{"/fleet", "/minions"} {
		b.see(path, ".empty")
		b.has("There are no minions yet")
		b.accessible(axe, path+" of nobody")
	}
	b.do("follow the next step", click(".empty a.button"), there("input[name=id]"))
	s.Key(t, "-y", "-a", "web1.example.com")
	s.Ping(t, 90*time.Second, "web1.example.com")
	b.see("/fleet", ".empty")
	b.has("No minion has run its states yet")

	seeWhatFailed(b, s)
	followAJob(b, s)
	stopAJob(b, s)
	b.clean("the administrator")

	o := open(t, s.base+"/console", 1280, 900)
	o.logIn("oscar")
	o.has("oscar (operator)")
	stopAJob(o, s)
	o.see("/minions", "table")
	o.has("Run something on this one")

	v := open(t, s.base+"/console", 390, 844)
	v.logIn("vera")
	v.has("vera (viewer)")
	v.see("/minions?result=failed", "table")
	v.hasNot("Run something")
	v.see("/jobs?fun=test.sleep", "table")
	v.do("a job", click(`tbody th a`), there(".facts"))
	v.hasNot("Stop…")
	refused := get[int](v, `fetch('/console/job/stop', { method: 'POST', body: new URLSearchParams({ do: 'kill', jid: new URLSearchParams(location.search).get('jid'), form: document.querySelector('input[name=form]').value }) }).then(r => r.status)`)
	if refused != 403 && refused != 409 {
		t.Errorf("the viewer kills a job: %d", refused)
	}

	for _, b := range []*tab{b, v} {
		wide := get[int](b, "innerWidth")
		for _, scheme := range []string{"dark", "light"} {
			b.colours(scheme)
			for path, wait := range map[string]string{
				"/fleet":                      "svg.trend",
				"/minions?columns=os&columns": "table",
				"/minion?id=web1.example.com": "table",
				"/jobs":                       "table",
				"/jobs?failed=1":              "table",
			} {
				b.see(path, wait)
				get[bool](b, `document.querySelectorAll("details").forEach(d => { d.open = true; }) || true`)
				b.accessible(axe, fmt.Sprintf("%s, %s, %d pixels", path, scheme, wide))
				if got := get[int](b, `document.documentElement.scrollWidth`); got > wide {
					t.Errorf("%s is %d pixels wide on a screen of %d", path, got, wide)
				}
				name, _, _ := strings.Cut(strings.Trim(path, "/"), "?")
				b.picture(fmt.Sprintf("%s-%s-%d", name, scheme, wide))
			}
		}
	}
}

// seeWhatFailed goes from the fleet to the minion to the state that failed.
func seeWhatFailed(b *tab, s site) {
	b.t.Helper()
	s.Salt(b.t, "web1.example.com", "state.apply")
	b.until("/fleet", "svg.bar", "fail_with_changes")
	b.do("the minions that failed", click(`.legend a[href*="result=failed"]`), there("table"))
	b.has("1 state failed")
	b.do("the minion", click(`tbody th a`), there("#failed"))
	b.has("the web server is not there")
	b.has("state.apply")

	b.see("/minions?q=no-such", ".empty")
	b.do("all of them", click(".empty a.button"), there("table"))
	b.see("/minions?columns=os,kernel", "table")
	b.see("/minions", "table")
	b.has("kernel") // a cookie keeps the columns
	lines := get[string](b, `fetch(document.querySelector('a[download]').href).then(r => r.text())`)
	if !strings.Contains(lines, "\r\nweb1.example.com,true,") || !strings.HasPrefix(lines, "minion,connected,") {
		b.t.Errorf("the CSV: %q", lines)
	}
}

// followAJob sees on the list of jobs, without reloading it, that a job comes and ends.
func followAJob(b *tab, s site) {
	b.t.Helper()
	b.see("/jobs", "#live")
	get[bool](b, `window.stays = true`)
	s.Salt(b.t, "--async", "web1.example.com", "test.sleep", "6")
	b.has("1 no answer yet")
	b.has("test.sleep 6")
	lab.Eventually(b.t, 30*time.Second, "the outcome", func() error {
		if row := get[string](b, `document.querySelector("tbody tr").innerText`); !strings.Contains(row, "1 ok") {
			return fmt.Errorf("the first row: %s", row)
		}
		return nil
	})
	if !get[bool](b, `window.stays === true`) {
		b.t.Error("the page was loaded again")
	}

	b.do("failed only", click("#failed"), click(`form.search button.main`), there("table"))
	b.has("Jobs of the history")
	b.has("state.apply")
	b.hasNot("test.sleep")
	b.see("/jobs?minion=web1.example.com", "table")
	b.has("test.ping")
}

// stopAJob starts a job that takes long, and stops it.
func stopAJob(b *tab, s site) {
	b.t.Helper()
	b.see("/run", "#fun")
	b.do("run", typed("#tgt", "web1*"), typed("#fun", "test.sleep"), typed("#arg", "300"), click(`form.run button.main`), there("#live"))
	b.has("no answer yet")
	// The minion stops what it works on, so it must have begun.
	lab.Eventually(b.t, time.Minute, "the minion works", func() error {
		out := s.Salt(b.t, "web1.example.com", "saltutil.running")
		if !strings.Contains(out.Out, "test.sleep") {
			return fmt.Errorf("%s", out.Out)
		}
		return nil
	})
	b.do("stop", click(`a[href*="do=kill"]`), there("button.danger"))
	b.has("web1.example.com")
	b.do("confirm", click("button.danger"), there(".notice"))
	b.has("1 minion was told to end the job at once")
	lab.Eventually(b.t, time.Minute, "the job has ended", func() error {
		out := s.Salt(b.t, "web1.example.com", "saltutil.running")
		if strings.Contains(out.Out, "test.sleep") {
			return fmt.Errorf("%s", out.Out)
		}
		return nil
	})
}
