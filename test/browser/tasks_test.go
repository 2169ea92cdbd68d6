package browser

import (
	"fmt"
	"testing"
	"time"

	"saltern/test/lab"
)

// tree has a state that would change something, and an orchestration.
var tree = map[string]string{
	"hello.sls": "hello:\n  test.succeed_with_changes: []\n",
	"orch.sls": `first:
  salt.state:
    - tgt: 'web*'
    - sls: hello
second:
  salt.function:
    - name: test.ping
    - tgt: 'web*'
    - require:
      - salt: first
`,
}

// TestTasks has an administrator, an operator and an auditor do their work: what one saves the other
// runs, and the third sees.
func TestTasks(t *testing.T) {
	t.Parallel()
	axe := axe(t)
	s := start(t, "web1.example.com", "  console: true\n", tree)
	admin := open(t, s.base+"/console", 1280, 900)
	admin.logIn("alice")
	acceptAll(t, admin, axe, s)
	orchestrate(t, admin, axe)
	save(admin, axe)

	operator := open(t, s.base+"/console", 390, 844)
	operator.logIn("otto")
	operator.see("/saved", "table")
	operator.accessible(axe, "saved jobs of an operator")
	operator.picture("saved-390")
	for _, no := range []string{"Change…", "Delete…", "Save a job"} {
		if get[bool](operator, fmt.Sprintf(`%s.includes(%q)`, shown, no)) {
			t.Errorf("an operator is offered %q", no)
		}
	}
	operator.do("run the saved job", click(`a[aria-label="Run greet"]`), there("#field_sls"))
	operator.accessible(axe, "form of a saved job, at 390 pixels")
	operator.do("only tell", click("#test"), click("main form button.main"), there("#live"))
	operator.has("would change")
	operator.clean("operator")

	auditor := open(t, s.base+"/console", 1280, 900)
	auditor.logIn("vera")
	auditor.has("vera (viewer)")
	auditor.see("/schedule", ".calendar")
	auditor.has("saved job greet")
	for path, wait := range map[string]string{"/schedule": ".calendar", "/saved": "table", "/saved?kind=target": "table", "/keys?state=minions": "table"} {
		auditor.see(path, wait)
		if n := get[int](auditor, `document.querySelectorAll("main form[method=post], main button.danger, main .pick input").length`); n > 0 {
			t.Errorf("an auditor is offered %d changes on %s", n, path)
		}
		auditor.accessible(axe, path+" of an auditor")
	}
	auditor.see("/audit?kind=saved.*", "table")
	auditor.has("saved.run")
	auditor.clean("auditor")
}

// acceptAll accepts all keys that match a pattern.
func acceptAll(t *testing.T, b *tab, axe string, s site) {
	t.Helper()
	b.see("/keys?state=minions_pre&q=nothing*", "main")
	b.has("No pending key matches")
	b.see("/keys?q=web*", `input[name=id]`)
	b.do("mark all", click("#every"))
	if !get[bool](b, `document.querySelector("input[name=id]").checked`) {
		t.Error("the key is not marked")
	}
	b.do("accept those that are marked", click(`button[name=do][value=accept]`), there("code.finger"))
	b.has(s.finger(t))
	b.accessible(axe, "confirmation of keys")
	b.do("confirm", click("main form[method=post] button.main"), there(".notice"))
	b.has("1 key accepted.")
	s.Ping(t, 90*time.Second, "web1.example.com")
}

// orchestrate runs an orchestration and a runner, and sees their results without a reload.
func orchestrate(t *testing.T, b *tab, axe string) {
	t.Helper()
	b.see("/run?kind=orchestration", "#sls")
	b.do("run an orchestration", typed("#sls", "orch"), click("form.run button.main"), there("#task, .result"))
	b.accessible(axe, "an orchestration at work")
	lab.Eventually(t, 2*time.Minute, "the result of the orchestration", func() error { return b.try(20*time.Second, there(".result")) })
	b.has("2 steps: ")
	b.hasNot("failed")
	b.accessible(axe, "an orchestration that has ended")
	b.picture("run-orchestration-1280")

	b.see("/run?kind=runner", "#fun")
	b.do("run a runner", typed("#fun", "manage.up"), click("form.run button.main"))
	b.has("web1.example.com")
	b.see("/run?kind=wheel", "#fun")
	b.do("run a wheel function", typed("#fun", "key.list_all"), click("form.run button.main"))
	b.has("minions_pre")

	b.see("/run", "#fun")
	b.do("cmd.run cannot be tested", typed("#tgt", "*"), typed("#fun", "cmd.run"), typed("#arg", "id"), click("#test"),
		click("form.run button.main"), there(".problem"))
	b.has("would run for real")
	b.forget()
	b.see("/run?tgt=*&list=1", "#fun")
	b.has("The list of functions is that of web1.example.com")
	b.clean("run")
}

// save saves a target, a job with a field, and an entry of the schedule.
func save(b *tab, axe string) {
	b.t.Helper()
	b.see("/saved?kind=target", ".empty")
	b.accessible(axe, "no saved targets")
	b.do("save a target", click("main a.button"), there("#name"), typed("#name", "web"), typed("#tgt", "web*"))
	b.accessible(axe, "form of a target")
	b.do("save it", click("main form button.main"), there(".notice"))

	b.see("/run?tgt=web&type=nodegroup&fun=state.apply", "#fun")
	b.do("save it as a job", click(`button[formaction$="/saved/job"]`), there("#may_run"))
	b.accessible(axe, "form of a job")
	get[string](b, `document.querySelector("#type").value = ""`)
	b.do("fill in the job", typed("#name", "greet"), typed("#arg", "{sls}"), click("details.field summary"), there("#name1"),
		typed("#name1", "sls"), typed("#default1", "hello"), typed("#may_run", "sharedsecret: otto"),
		click("main form button.main"), there(".notice"))
	b.picture("saved-1280")

	b.see("/schedule/edit", "#name")
	b.accessible(axe, "form of an entry")
	get[string](b, `document.querySelector("#job").value = "greet"`)
	b.do("schedule it", typed("#name", "nightly"), typed("#at", "02:30"), click("main form button.main"), there(".notice"))
	b.until("/schedule", ".calendar", "02:30 nightly")
	b.accessible(axe, "schedule")
	b.picture("schedule-1280")
	b.do("switch it off", click(`button[aria-label="Switch off nightly"]`), there(".notice"))
	b.until("/schedule", "table", "off")
	b.do("and on", click(`button[aria-label="Switch on nightly"]`), there(".notice"))
	b.clean("save")
}

// forget drops what the browser's console has told of: a form that is refused is an error for it.
func (b *tab) forget() {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.faults = nil
}
