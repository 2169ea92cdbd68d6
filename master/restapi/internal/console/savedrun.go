package console

import (
	"cmp"
	"context"
	"net/http"
	"net/url"
	"strings"

	"saltern/master/jobs"
	"saltern/master/value"
)

// savedField is a field of a saved job, to be filled in.
type savedField struct {
	Name, Kind, Description string
	Value                   string
	Choices                 []string
	Pattern                 string
	Required                bool // it has no default
}

// savedRunPage is the form to run a saved job.
type savedRunPage struct {
	savedJob
	Args    string // arguments, with the names of fields in braces
	Fields  []savedField
	CanTest bool
	Test    bool
	Waits   bool // it asks minions before it starts, which may take a while

	TestsFirst bool // it runs with test=True before
	InBatch    bool // it pings the minions before
	Counted    bool // N is the number of minions that the target selects
	N          int
	Below      bool // minions below syndics, who are not counted, get the job, too
}

// savedRunOf returns the form for a job; get returns what was filled in, and filled whether anything
// was.
func (c *Console) savedRunOf(name string, m *value.Map, get func(string) string, filled bool) savedRunPage {
	d := savedRunPage{savedJob: c.savedJobOf(name, m), Test: get("test") != ""}
	d.CanTest = obeysTest(d.Function)
	d.TestsFirst = m.Value("test_first") == true
	d.InBatch = m.Value("batch") != nil
	d.Waits = d.TestsFirst || d.InBatch
	d.Args = savedLines(m.List("args"), m.Map("kwargs"))

	for _, x := range m.List("fields") {
		f, _ := x.(*value.Map)
		field := savedField{
			Name:        f.Str("name"),
			Kind:        f.Str("kind"),
			Description: briefName(f.Str("description")),
			Choices:     f.Texts("choices"),
			Pattern:     briefName(f.Str("pattern")),
		}

		def, has := f.Get("default")
		field.Required = !has || def == nil
		if field.Value = get("field_" + field.Name); !filled && field.Value == "" && !field.Required {
			field.Value = value.StrMax(def, maxText)
		}
		if field.Kind == "bool" {
			field.Value = strings.ToLower(field.Value)
		}

		d.Fields = append(d.Fields, field)
	}

	return d
}

func prepareSavedRun(c *Console, ctx context.Context, v *visit) (Answer, error) {
	name := cutText(v.query.Get("name"), maxName)
	m, err := savedObject(ctx, v, savedJobs, name)
	if err != nil {
		return Answer{}, err
	}
	d := c.savedRunOf(name, m, v.query.Get, false)
	d.countMinions(c, ctx, v, m)
	return c.render(v, "savedrun", http.StatusOK, page{Title: "Run " + d.Name, Data: d})
}

// countMinions counts the minions that the target of the job m selects, if the user may see them.
func (d *savedRunPage) countMinions(c *Console, ctx context.Context, v *visit, m *value.Map) {
	selects := target{Target: m.Str("target"), Type: cmp.Or(m.Str("target_type"), "nodegroup")}
	if !d.Runs || !selects.isSeenBy(v) {
		return
	}

	ids, err := c.preview(ctx, v, selects)
	if err != nil { // the page is of use without
		return
	}
	d.Counted = true
	d.N = len(ids)
	d.Below = c.reachesBelow(selects)
}

// startSavedRun runs a saved job with the values of the form, and leads to its page.
func startSavedRun(c *Console, ctx context.Context, v *visit) (Answer, error) {
	form, err := v.Form()
	if err != nil {
		return Answer{}, err
	}

	name := cutText(form.Get("name"), maxName)
	m, err := savedObject(ctx, v, savedJobs, name)
	if err != nil {
		return Answer{}, err
	}

	d := c.savedRunOf(name, m, form.Get, true)
	if revisionOf(form) != d.Revision {
		return c.render(v, "savedrun", http.StatusConflict, page{Title: "Run " + d.Name, Data: d,
			Problem: "The job was changed by " + d.By + " since this page was shown. Nothing was run. Look at what it does now before you run it."})
	}

	fields := value.NewMap()
	for _, f := range d.Fields {
		fields.Set(f.Name, f.Value) // an emptied field is not the default: the master says whether it fits
	}

	named := value.NewMap("name", name, "fields", fields, "revision", d.Revision)
	if d.Test {
		named.Set("test", true)
	}

	if d.Waits && v.mayCall("runner", "jobs.list_job") && v.hasClient("runner_async") {
		got, err := v.runCommand(ctx, "runner_async", runSaved, "kwarg", named)
		if err != nil {
			return Answer{}, err
		}
		started, _ := got.(*value.Map)
		if jid := started.Str("jid"); jobs.Valid(jid) {
			return c.redirect("/task", url.Values{"jid": {jid}}), nil
		}
		return Answer{}, &Refusal{http.StatusBadGateway, "The master does not say whether it runs the job. Look at the page Jobs before you try again."}
	}

	got, problem, err := v.askRunner(ctx, runSaved, named)
	if err != nil {
		return Answer{}, err
	}
	if problem == "" && !jobs.Valid(got.Str("jid")) {
		problem = "The master started nothing."
	}
	if jid := startedIn(problem); jid != "" {
		return c.redirect("/job", url.Values{"jid": {jid}}), nil
	}
	if problem != "" {
		return c.render(v, "savedrun", http.StatusBadRequest, page{Title: "Run " + d.Name, Data: d, Problem: problem})
	}

	return c.redirect("/job", url.Values{"jid": {got.Str("jid")}}), nil
}

// startedIn returns the id of a job that has started although saved.run failed, because nobody knows who has it; "" if
// none has. To show the form again would invite the user to run the job twice.
func startedIn(problem string) string {
	named, ofJob := strings.CutPrefix(problem, "job ")
	jid, says, _ := strings.Cut(named, " ")
	if !ofJob || !jobs.Valid(jid) || !strings.HasPrefix(says, "has started") {
		return ""
	}
	return jid
}
