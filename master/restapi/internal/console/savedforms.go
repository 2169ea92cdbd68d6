package console

import (
	"cmp"
	"context"
	"math"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"

	"saltern/master/value"
)

// emptyFields is how many rows for further fields the form of a saved job has.
const emptyFields = 3

// fieldForm is the row of a field in the form of a saved job.
type fieldForm struct {
	N                                   int // number of the row, from 1
	Name, Kind, Default, Pattern, About string
	Choices                             string // one a line
}

// jobForm is the form of a saved job.
type jobForm struct {
	Name, Description  string
	Exists             bool
	Revision           int64
	Function, Args     string
	Target             string
	Type               string // "": Target is the name of a saved target
	Types              []targetType
	Targets            []string // names of saved targets
	Functions          []offer
	Fields             []fieldForm
	TestFirst          bool
	Batch, Stop, Limit string
	MayRun             string
	Kinds              []string // kinds of fields
}

// marksOfObject are the fields that a runner adds to the settings of an object.
var marksOfObject = []string{"revision", "changed", "by", "fault", "note", "notes", "runs"}

// jobFormOf returns the form of a job with these settings.
func jobFormOf(name string, m *value.Map) jobForm {
	d := jobForm{
		Name:        name,
		Exists:      true,
		Description: m.Str("description"),
		Function:    m.Str("function"),
		Args:        savedLines(m.List("args"), m.Map("kwargs")),
		Target:      m.Str("target"),
		Type:        m.Str("target_type"),
		TestFirst:   m.Value("test_first") == true,
		Batch:       settingText(m.Value("batch")),
		Stop:        settingText(m.Value("stop_above")),
		Limit:       settingText(m.Value("timeout")),
		MayRun:      mayRunLines(m.Map("may_run")),
	}
	d.Revision, _ = m.Int("revision")
	for _, x := range m.List("fields") {
		f, _ := x.(*value.Map)
		d.Fields = append(d.Fields, fieldForm{
			Name:    f.Str("name"),
			Kind:    f.Str("kind"),
			Default: settingText(f.Value("default")),
			Pattern: f.Str("pattern"),
			About:   f.Str("description"),
			Choices: strings.Join(f.Texts("choices"), "\n"),
		})
	}
	return d
}

// settingText returns a setting as a field of a form has it; nil is "".
func settingText(v any) string {
	if v == nil {
		return ""
	}
	return value.StrMax(v, maxText)
}

// jobFormIn returns the form of a job as it was sent.
func jobFormIn(form url.Values) jobForm {
	get := func(name string) string { return strings.TrimSpace(cutText(form.Get(name), maxText)) }
	d := jobForm{
		Name:        get("name"),
		Exists:      get("revision") != "0" && get("revision") != "",
		Revision:    revisionOf(form),
		Description: get("description"),
		Function:    get("fun"),
		Args:        cutText(form.Get("arg"), maxTarget),
		Target:      strings.TrimSpace(cutText(form.Get("tgt"), maxTarget)),
		Type:        get("type"),
		TestFirst:   get("test_first") != "",
		Batch:       get("batch"),
		Stop:        get("stop_above"),
		Limit:       get("limit"),
		MayRun:      cutText(form.Get("may_run"), maxText),
	}

	at := func(name string, i int) string {
		if list := form[name]; i < len(list) {
			return cutText(list[i], maxText)
		}
		return ""
	}
	for i := range form["field_name"][:min(len(form["field_name"]), maxArgs)] {
		f := fieldForm{
			Name:    strings.TrimSpace(at("field_name", i)),
			Kind:    at("field_kind", i),
			Default: at("field_default", i),
			Pattern: at("field_pattern", i),
			About:   at("field_about", i),
			Choices: at("field_choices", i),
		}
		if f.Name != "" || f.Default != "" || f.Pattern != "" || f.About != "" || f.Choices != "" {
			d.Fields = append(d.Fields, f)
		}
	}

	return d
}

// settings returns the settings of the job that the form describes. problem names a fault of the
// form, or is "". The master checks the settings.
func (d *jobForm) settings() (m *value.Map, problem string) {
	m = value.NewMap("function", d.Function, "target", d.Target)
	set := func(name, text string) {
		if text != "" {
			m.Set(name, text)
		}
	}
	set("description", d.Description)
	set("target_type", d.Type)
	set("batch", d.Batch)

	args, named := savedArguments(d.Args)
	if len(args) > 0 {
		m.Set("args", args)
	}
	if named.Len() > 0 {
		m.Set("kwargs", named)
	}
	if d.TestFirst {
		m.Set("test_first", true)
	}

	for name, text := range map[string]string{"stop_above": d.Stop, "timeout": d.Limit} {
		if text == "" {
			continue
		}
		n, err := strconv.ParseFloat(text, 64)
		if err != nil {
			return nil, "The limits are numbers: " + briefName(text) + " is none."
		}
		m.Set(name, n)
		if n == math.Trunc(n) && math.Abs(n) < 1e15 {
			m.Set(name, int64(n))
		}
	}

	var fields []any
	for _, f := range d.Fields {
		fields = append(fields, f.settings())
	}
	if len(fields) > 0 {
		m.Set("fields", fields)
	}

	mayRun, bad := mayRunOf(d.MayRun)
	if bad != "" {
		return nil, "Who may run it: write lines such as pam: alice, ops%. This is none: " + briefName(bad)
	}
	if mayRun.Len() > 0 {
		m.Set("may_run", mayRun)
	}

	return m, ""
}

func (f *fieldForm) settings() *value.Map {
	m := value.NewMap("name", f.Name, "kind", f.Kind)
	for name, text := range map[string]string{"default": f.Default, "pattern": f.Pattern, "description": f.About} {
		if text != "" {
			m.Set(name, text)
		}
	}
	var choices []any
	for _, line := range textLines(f.Choices) {
		choices = append(choices, line)
	}
	if len(choices) > 0 {
		m.Set("choices", choices)
	}
	return m
}

// expressible reports whether settings come back from a form as they are. Otherwise the form would
// lose something.
func expressible(was, again *value.Map) bool {
	plain := was.Clone()
	for _, name := range marksOfObject {
		plain.Delete(name)
	}
	for _, name := range plain.Keys() {
		switch v := plain.Value(name); v := v.(type) {
		case nil:
			plain.Delete(name)
		case bool:
			if v == (name == "enabled") { // the default
				plain.Delete(name)
			}
		case *value.Map:
			if v.Len() == 0 {
				plain.Delete(name)
			}
		case []any:
			if len(v) == 0 {
				plain.Delete(name)
			}
		}
	}
	if fields := plain.List("fields"); len(fields) > 0 {
		var all []any
		for _, x := range fields {
			f, _ := x.(*value.Map)
			f = f.Clone()
			f.Set("kind", cmp.Or(f.Str("kind"), "text")) // the default
			all = append(all, f)
		}
		plain.Set("fields", all)
	}

	return sameSettings(plain, again)
}

const notByForm = "It has settings that this form cannot hold. Change it by salt-run on a node, or by the API."

// mayChangeJobs reports whether the user may save jobs, and sees all of a job that he changes. The
// master tells who may run a job only to users who may call saved.jobs; a job that anybody else saves
// again would name nobody.
func (v *visit) mayChangeJobs() bool {
	return v.mayCall("runner", setSavedJob) && v.mayCall("runner", savedJobs)
}

// refuseJobForm returns the refusal for a user who may not change jobs.
func refuseJobForm() error {
	return &Refusal{http.StatusForbidden,
		"To save a job takes the runners saved.set_job and saved.jobs: without both, the form would take the job away from those who may run it. " +
			"An administrator can permit them in external_auth."}
}

func editJob(c *Console, ctx context.Context, v *visit) (Answer, error) {
	if !v.mayChangeJobs() {
		return Answer{}, refuseJobForm()
	}

	name := cutText(v.query.Get("name"), maxName)
	d := jobForm{
		Function: cutText(v.query.Get("fun"), maxName),
		Args:     cutText(v.query.Get("arg"), maxText),
		Target:   cutText(v.query.Get("tgt"), maxText),
		Type:     v.query.Get("type"),
	}
	notice := d.takeParts(partsOf(v.query.Get))
	if sls := cutText(v.query.Get("sls"), maxName); sls != "" {
		d.Args = strings.TrimSpace(sls + "\n" + d.Args)
	}
	if name != "" {
		m, err := savedObject(ctx, v, savedJobs, name)
		if err != nil {
			return Answer{}, err
		}
		if len(m.List("withheld")) > 0 {
			return Answer{}, refuseJobForm()
		}

		d = jobFormOf(name, m)
		if again, problem := d.settings(); problem != "" || !expressible(m, again) {
			return Answer{}, &Refusal{http.StatusConflict, notByForm}
		}
	}

	return d.render(c, ctx, v, http.StatusOK, page{Notice: notice})
}

// takeParts fills in the limits from the form of the page Run. notice says in what they differ, or is "".
func (d *jobForm) takeParts(p parts) (notice string) {
	if p.Batch == "" {
		return ""
	}
	d.Batch = p.Batch
	d.Limit = p.Timeout
	if p.Failhard {
		d.Stop = "0"
		notice = "A saved job stops above a percentage of failed minions: with 0 it stops after the first one, and does not begin while a minion does not answer. "
	}
	if p.Wait != "" && p.Wait != "0" {
		notice += "A saved job has no wait between minions: that field was left out."
	}
	return strings.TrimSpace(notice)
}

// render shows the form, with the problem and the notice of p.
func (d *jobForm) render(c *Console, ctx context.Context, v *visit, code int, p page) (Answer, error) {
	if v.mayCall("runner", savedTargets) {
		all, err := savedObjects(ctx, v, savedTargets)
		if err != nil {
			return Answer{}, err
		}
		d.Targets = all.Keys()
		slices.Sort(d.Targets)
	}

	d.Types = append([]targetType{{"", "saved target"}}, targetTypes()...)
	d.Functions = usualFunctions()
	d.Kinds = []string{"text", "number", "choice", "bool"}
	for range emptyFields {
		d.Fields = append(d.Fields, fieldForm{Kind: "text"})
	}
	for i := range d.Fields {
		d.Fields[i].N = i + 1
	}

	p.Title = "Save a job"
	if d.Exists {
		p.Title = "Change the saved job " + briefName(d.Name)
	}
	p.Data = *d
	return c.render(v, "savedjob", code, p)
}

func saveJob(c *Console, ctx context.Context, v *visit) (Answer, error) {
	if !v.mayChangeJobs() {
		return Answer{}, refuseJobForm()
	}

	form, err := v.Form()
	if err != nil {
		return Answer{}, err
	}

	d := jobFormIn(form)
	settings, problem := d.settings()
	if problem == "" {
		settings.Set("name", d.Name)
		settings.Set("revision", d.Revision)
		_, problem, err = v.askRunner(ctx, setSavedJob, settings)
	}
	if err != nil {
		return Answer{}, err
	}
	if problem != "" {
		return d.render(c, ctx, v, http.StatusBadRequest, page{Problem: problem})
	}

	return c.redirectTo("/saved", "saved"), nil
}

// targetForm is the form of a saved target.
type targetForm struct {
	target
	Name, Description string
	Exists            bool
	Revision          int64
}

func editTarget(c *Console, ctx context.Context, v *visit) (Answer, error) {
	d := targetForm{target: targetOf(v.query.Get), Name: cutText(v.query.Get("name"), maxName)}
	if d.Name != "" {
		m, err := savedObject(ctx, v, savedTargets, d.Name)
		if err != nil {
			return Answer{}, err
		}

		d.Target, d.Type, d.Exists = m.Str("expression"), m.Str("type"), true
		d.Description = m.Str("description")
		d.Revision, _ = m.Int("revision")
	}
	return d.render(c, v, http.StatusOK, "")
}

func (d *targetForm) render(c *Console, v *visit, code int, problem string) (Answer, error) {
	d.Types = append(d.Types[:len(d.Types):len(d.Types)], targetType{"pillar_pcre", "pillar (regular expression)"})
	title := "Save a target"
	if d.Exists {
		title = "Change the saved target " + briefName(d.Name)
	}
	return c.render(v, "savedtarget", code, page{Title: title, Data: *d, Problem: problem})
}

func saveTarget(c *Console, ctx context.Context, v *visit) (Answer, error) {
	form, err := v.Form()
	if err != nil {
		return Answer{}, err
	}

	d := targetForm{
		target:      targetOf(form.Get),
		Name:        strings.TrimSpace(cutText(form.Get("name"), maxName)),
		Description: cutText(form.Get("description"), maxText),
		Revision:    revisionOf(form),
	}
	d.Exists = d.Revision > 0
	if form.Get("type") == "pillar_pcre" {
		d.Type = "pillar_pcre"
	}

	named := value.NewMap("name", d.Name, "expression", d.Target, "type", d.Type, "revision", d.Revision)
	if d.Description != "" {
		named.Set("description", d.Description)
	}
	_, problem, err := v.askRunner(ctx, setSavedTarget, named)
	if err != nil {
		return Answer{}, err
	}
	if problem != "" {
		return d.render(c, v, http.StatusBadRequest, problem)
	}

	return c.redirectTo("/saved?kind=target", "saved"), nil
}
