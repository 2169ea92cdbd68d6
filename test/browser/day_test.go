package browser

import (
	"fmt"
	"math/rand/v2"
	"os"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/chromedp/chromedp"

	"saltern/test/lab"
)

// usersOfDay are the users of TestThreeNodes: an administrator, an operator, an auditor, somebody who may
// only run a saved job, and a viewer.
func usersOfDay() map[string]any {
	return map[string]any{"sharedsecret": map[string]any{
		"alice": []any{".*", "@runner", "@wheel", "@jobs"},
		"otto": []any{
			map[string]any{"*": []any{`state\..*`, `test\..*`, `saltutil\..*`}},
			map[string]any{"@runner": viewed},
		},
		"paula": []any{
			map[string]any{"@runner": append([]any{"schedule.list", "saved.jobs", "saved.schedules", "audit.all", "audit.records", "cluster.members"}, viewed...)},
			map[string]any{"@wheel": []any{"key.list_all", "key.finger"}},
		},
		"sam":  []any{map[string]any{"nothing": []any{"test.ping"}}},
		"vera": []any{map[string]any{"@runner": []any{"presence.minions", "appliance.*"}}},
	}}
}

// day3 is a day's work at the virtual address of three nodes.
type day3 struct {
	t       *testing.T
	axe     string
	address string // of the console
	admin   *tab
	node    *lab.Appliance // one that stays
	job     string         // URL of a job of the operator
	lose    func()         // makes the node with the address disappear
	loss    string         // one of losses: when lose is called
}

// losses are moments of the operator's work. In each run of the test the node with the address is lost at one
// of them.
var losses = []string{lossOnMinion, lossOnForm, lossOnOutcome, lossOnJob}

const (
	lossOnMinion  = "the page of the minion is open" // with a stream of events
	lossOnForm    = "the form is filled in"
	lossOnOutcome = "the outcome is shown"
	lossOnJob     = "the job runs" // with a stream of events on its page
)

// chooseLoss returns one of losses: the one whose number SALTERN_LOSS is, else a random one.
func chooseLoss(t *testing.T) string {
	t.Helper()
	n := rand.IntN(len(losses))
	if text := os.Getenv("SALTERN_LOSS"); text != "" {
		var err error
		if n, err = strconv.Atoi(text); err != nil || n < 0 || n >= len(losses) {
			t.Fatalf("SALTERN_LOSS is a number from 0 to %d, not %q", len(losses)-1, text)
		}
	}

	t.Logf("the node is lost while %s (SALTERN_LOSS=%d)", losses[n], n)
	return losses[n]
}

// reach is called at each of the moments of losses.
func (d *day3) reach(moment string) {
	if moment == d.loss {
		d.lose()
	}
}

// forgiveStream drops the one line with which the operator's browser reports that a stream ended, or did not
// begin, on a connection to the lost node. At other ends of streams, such as net::ERR_HTTP2_PROTOCOL_ERROR, the
// test fails.
func (d *day3) forgiveStream(o *tab) {
	o.mu.Lock()
	defer o.mu.Unlock()
	ofLoss := func(fault string) bool {
		closed := strings.Contains(fault, "net::ERR_CONNECTION_") || strings.Contains(fault, "net::ERR_SOCKET_NOT_CONNECTED")
		return closed && strings.Contains(fault, " "+d.address+"/stream?")
	}
	if i := slices.IndexFunc(o.faults, ofLoss); i >= 0 {
		d.t.Logf("at the loss: %s", o.faults[i])
		o.faults = slices.Delete(o.faults, i, i+1)
	}
}

// look opens a page and holds that axe-core finds nothing and that it fits, at both widths.
func (d *day3) look(b *tab, path, selector string) {
	d.t.Helper()
	b.see(path, selector)
	for _, wide := range []int64{390, 1280} {
		if err := chromedp.Do(b.ctx, chromedp.EmulateViewport(wide, 844)); err != nil {
			d.t.Fatal(err)
		}
		b.accessible(d.axe, fmt.Sprintf("%s at %d pixels", path, wide))
		if got := get[int64](b, `document.documentElement.scrollWidth`); got > wide {
			d.t.Errorf("%s is %d pixels wide on a screen of %d", path, got, wide)
		}
	}
}

// enter logs a user in at the virtual address.
func (d *day3) enter(user string, wide int64) *tab {
	d.t.Helper()
	b := open(d.t, d.address, wide, 844)
	b.logIn(user)
	return b
}

// operate has an operator find what failed, read why, try a state and run it, see its outcome, and stop a
// job. At one of losses the node with the address is lost.
func (d *day3) operate(o *tab) {
	d.t.Log("day 1: find the minions whose last run failed, and read why")
	o.until("/minions?result=failed", "table", "web1")
	d.look(o, "/minions?result=failed", "table")
	o.do("the minion", click(`tbody th a[href*="web1"]`), there("#failed"))
	o.has("the web server is not there")
	d.look(o, "/minion?id=web1", "#failed")
	d.reach(lossOnMinion)

	d.t.Log("day 2: see what a state would change")
	o.see("/run", "#fun")
	o.do("fill in the form", typed("#tgt", "web1"), typed("#fun", "state.apply"), typed("#arg", "hello"), click("#test"))
	d.reach(lossOnForm)
	o.do("send it", click(`form.run button.main`), there("#live"))
	o.has("would change")

	d.t.Log("day 3: run it, and see its outcome")
	o.run("web1", "", "state.apply", "hello")
	o.has("web1 changed")
	d.job = get[string](o, `location.pathname.replace("/console", "") + location.search`)
	d.look(o, d.job, "#live, .facts")
	d.reach(lossOnOutcome)
	o.until("/jobs", "table", "1 changed")
	d.look(o, "/jobs", "table")

	d.t.Log("day 4: stop a job")
	o.run("web1", "", "test.sleep", "300")
	o.has("no answer yet")
	d.works(true) // a minion stops what it works on, so it must have begun
	d.reach(lossOnJob)
	o.do("stop", click(`a[href*="do=kill"]`), there("button.danger"), click("button.danger"), there(".notice"))
	o.has("1 minion was told to end the job at once")
	d.works(false)
	d.forgiveStream(o)
	o.clean("operator")
}

// works waits until web1 works on the job, or until it has ended it.
func (d *day3) works(want bool) {
	d.t.Helper()
	lab.Eventually(d.t, time.Minute, fmt.Sprintf("web1 works on the job: %t", want), func() error {
		out := d.node.Tool(d.t, "salt", "web1", "saltutil.running")
		if strings.Contains(out.Out, "test.sleep") != want {
			return fmt.Errorf("%s%s", out.Out, out.Err)
		}
		return nil
	})
}

// prepare has the administrator save a job, schedule it, and switch the entry off.
func (d *day3) prepare() {
	b := d.admin
	d.t.Log("day 5: save a job, and name who may run it")
	b.see("/saved/job", "#may_run")
	get[string](b, `document.querySelector("#type").value = "glob"`)
	b.do("fill in the job", typed("#name", "greet"), typed("#tgt", "web*"), typed("#fun", "state.apply"), typed("#arg", "hello"),
		typed("#may_run", "sharedsecret: sam"), click("main form button.main"), there(".notice"))
	d.look(b, "/saved", "table")

	d.t.Log("day 6: schedule it, and switch it off and on")
	b.see("/schedule/edit", "#name")
	get[string](b, `document.querySelector("#job").value = "greet"`)
	b.do("schedule it", typed("#name", "nightly"), typed("#at", "02:30"), click("main form button.main"), there(".notice"))
	b.until("/schedule", ".calendar", "02:30 nightly")
	b.do("switch it off", click(`button[aria-label="Switch off nightly"]`), there(".notice"))
	b.until("/schedule", `button[aria-label="Switch on nightly"]`, "off")
	b.do("switch it on", click(`button[aria-label="Switch on nightly"]`), there(".notice"))

	d.t.Log("day 7: explain a minion")
	b.see("/minion?id=db1", "#live")
	b.do("explain it", click(`a[href*="explain=1"]`), there("#explained"))
	b.has("It answers")
	b.has("broken") // which a line of the top file gives to it
	d.look(b, "/minion?id=db1&explain=1", "#explained")
	b.clean("administrator")
}

// runSaved has somebody whom only a saved job names run it. He sees what became of it, and no other job.
func (d *day3) runSaved(s *tab) {
	d.t.Log("day 8: run a saved job, and see its outcome without the right to see jobs")
	s.until("/saved", "table", "greet")
	s.do("run it", click(`a[aria-label="Run greet"]`), there("main form button.main"), click("main form button.main"), there(".facts"))
	s.has("web1 changed")
	s.has("web1")
	d.look(s, get[string](s, `location.pathname.replace("/console", "") + location.search`), ".facts")
	s.clean("whom a saved job names")
	s.see(d.job, "main")
	s.has("that sam (sharedsecret) has started")
	s.hasNot("succeed_with_changes")
	s.forget()
}

// inspect has an auditor see drift, the next runs, the minions as CSV, and who did what.
func (d *day3) inspect(a *tab) {
	d.t.Log("day 9: see drift and the fleet")
	a.until("/fleet", "svg.bar", "Drift")
	d.look(a, "/fleet", "svg.bar")

	d.t.Log("day 10: next runs")
	a.until("/schedule", ".calendar", "02:30 nightly")
	d.look(a, "/schedule", ".calendar")

	d.t.Log("day 11: the minions as CSV")
	a.see("/minions", "table")
	lines := get[string](a, `fetch(document.querySelector('a[download]').href).then(r => r.text())`)
	if !strings.HasPrefix(lines, "minion,connected,") || !strings.Contains(lines, "\r\nweb1,") || !strings.Contains(lines, "\r\ndb1,") {
		d.t.Errorf("the CSV: %q", lines)
	}

	d.t.Log("day 12: who did what")
	a.until("/audit?user=otto", "table", "state.apply")
	a.has("Records are missing of n3")
	a.until("/audit?kind=saved.*", "table", "saved.set")
	a.has("sam")
	d.look(a, "/audit", "table")
	if n := get[int](a, `document.querySelectorAll("main form[method=post], main button.danger").length`); n > 0 {
		d.t.Errorf("an auditor is offered %d changes", n)
	}
	a.clean("auditor")
}

// endLogIn has the administrator end the log-ins of the operator.
func (d *day3) endLogIn(o *tab) {
	d.t.Log("day 13: end a log-in")
	b := d.admin
	d.look(b, "/tokens", "table")
	b.do("all of otto", click(`a[href*="confirm?user=otto"]`), there("button.danger"), click("button.danger"), there(".notice"))
	lab.Eventually(d.t, 30*time.Second, "the operator has to log in", func() error {
		return o.try(10*time.Second, visit(d.address+"/jobs"), there("#username"))
	})
}
