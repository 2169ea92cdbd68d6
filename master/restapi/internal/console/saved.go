package console

import (
	"cmp"
	"context"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strings"

	"saltern/master/value"
)

// Runners of saved objects (package saved).
const (
	savedJobs        = "saved.jobs"
	savedTargets     = "saved.targets"
	savedSchedules   = "saved.schedules"
	setSavedJob      = "saved.set_job"
	setSavedTarget   = "saved.set_target"
	setSavedSchedule = "saved.set_schedule"
	deleteSaved      = "saved.delete"
	runSaved         = "saved.run"
	outcomeOfSaved   = "saved.outcome"
)

// savedMark holds the fields that all saved objects have.
type savedMark struct {
	Name, Description string
	By                string // who made the last change
	Changed           moment
	Revision          int64
	Fault, Note       string // why it cannot be used, or not everywhere
}

// savedJob is a saved job in the list.
type savedJob struct {
	savedMark
	Function string
	ArgLine  string // arguments, with the names of fields in braces
	Asks     string // which fields whoever runs it fills in, or ""
	Target   string
	Type     string // type of the target; "": it is the name of a saved target
	Limits   string
	MayRun   string
	Runs     bool // the user may run it
}

// savedTarget is a saved target in the list.
type savedTarget struct {
	savedMark
	Expression, Type string
}

// savedPage is the data of the page Saved.
type savedPage struct {
	Kind       string // job or target
	MayJobs    bool   // there may be jobs for the user
	MayTargets bool
	MayAdd     bool
	MayDelete  bool
	Jobs       []savedJob
	Targets    []savedTarget
	pager
}

// askRunner calls a runner with named arguments. problem is why the runner did not do it, for people,
// or "".
func (v *visit) askRunner(ctx context.Context, fun string, named *value.Map) (got *value.Map, problem string, err error) {
	reply, err := v.runCommand(ctx, "runner", fun, "kwarg", named)
	if err != nil {
		return nil, "", err
	}
	got, ok := reply.(*value.Map)
	if ok || reply == true {
		return got, "", nil
	}
	return nil, runnerProblem(value.StrMax(reply, maxText)), nil
}

// runnerProblem returns what is wrong from the text that a runner returns after an error.
func runnerProblem(text string) string {
	text, _, _ = strings.Cut(strings.TrimSpace(text), "\n\nUsage:")
	text = strings.TrimPrefix(text, "Passed invalid arguments: ")
	if rest, ok := strings.CutPrefix(text, "Exception occurred in runner "); ok {
		_, text, _ = strings.Cut(rest, ": ")
	}
	if rest, ok := strings.CutPrefix(text, "runner "); ok {
		_, text, _ = strings.Cut(rest, ": ")
	}
	text = cutText(text, 1000)
	return strings.Map(func(r rune) rune {
		if r < 0x20 {
			return ' '
		}
		return r
	}, cmp.Or(text, "The master did not do that, and does not say why."))
}

// savedObjects returns the saved objects that a runner lists. It returns none for a user whom the
// master refuses.
func savedObjects(ctx context.Context, v *visit, fun string) (*value.Map, error) {
	got, problem, err := v.askRunner(ctx, fun, value.NewMap())
	if isUnauthorized(err) {
		return value.NewMap(), nil
	}
	if err != nil {
		return nil, err
	}
	if problem != "" {
		return nil, &Refusal{http.StatusBadGateway, "The master does not tell what is saved: " + problem}
	}
	return got, nil
}

// savedObject returns one saved object, or a refusal if there is none.
func savedObject(ctx context.Context, v *visit, fun, name string) (*value.Map, error) {
	all, err := savedObjects(ctx, v, fun)
	if err != nil {
		return nil, err
	}
	if o := all.Map(name); o != nil {
		return o, nil
	}
	return nil, &Refusal{http.StatusNotFound, "There is no saved object of that name, or it is not for you."}
}

func (c *Console) markOf(name string, m *value.Map) savedMark {
	mark := savedMark{
		Name:        briefName(name),
		Description: briefName(m.Str("description")),
		By:          briefName(m.Str("by")),
		Changed:     c.momentOf(m.Str("changed")),
		Fault:       briefName(m.Str("fault")),
		Note:        briefName(m.Str("note")),
	}
	mark.Revision, _ = m.Int("revision")
	return mark
}

func showSaved(c *Console, ctx context.Context, v *visit) (Answer, error) {
	d := savedPage{
		Kind:       "job",
		MayTargets: v.mayCall("runner", savedTargets),
		MayDelete:  v.mayCall("runner", deleteSaved),
		MayAdd:     v.mayChangeJobs(),
	}

	fun := savedJobs
	if v.query.Get("kind") == "target" && d.MayTargets {
		d.Kind, fun = "target", savedTargets
		d.MayAdd = v.mayCall("runner", setSavedTarget)
	}

	all, err := savedObjects(ctx, v, fun)
	if err != nil {
		return Answer{}, err
	}

	names := all.Keys()
	slices.Sort(names)
	var lo, hi int
	lo, hi, d.pager = pageOf(len(names), perPage, c.base+"/saved", url.Values{"kind": {d.Kind}, "page": v.query["page"]})
	for _, name := range names[lo:hi] {
		m := all.Map(name)
		if d.Kind == "job" {
			d.Jobs = append(d.Jobs, c.savedJobOf(name, m))
			continue
		}
		d.Targets = append(d.Targets, savedTarget{
			savedMark:  c.markOf(name, m),
			Expression: briefName(m.Str("expression")),
			Type:       briefName(m.Str("type")),
		})
	}

	return c.render(v, "saved", http.StatusOK, page{Title: "Saved " + d.Kind + "s", Data: d, Notice: savedNotice(v.query)})
}

func (c *Console) savedJobOf(name string, m *value.Map) savedJob {
	return savedJob{
		savedMark: c.markOf(name, m),
		Function:  briefName(m.Str("function")),
		ArgLine:   briefName(strings.ReplaceAll(savedLines(m.List("args"), m.Map("kwargs")), "\n", " ")),
		Asks:      briefName(asksWord(m.List("fields"))),
		Target:    briefName(m.Str("target")),
		Type:      briefName(m.Str("target_type")),
		Limits:    limitWords(m),
		MayRun:    briefName(mayRunWords(m.Map("may_run"))),
		Runs:      m.Value("runs") == true,
	}
}

// asksWord names the fields that whoever runs a saved job fills in, with their choices, or returns "".
func asksWord(fields []any) string {
	var words []string
	for _, e := range fields {
		f, _ := e.(*value.Map)
		word := f.Str("name")
		if choices := f.Texts("choices"); len(choices) > 0 {
			word += " (" + strings.Join(choices, ", ") + ")"
		}
		words = append(words, word)
	}
	if len(words) == 0 {
		return ""
	}
	return "asks for " + strings.Join(words, ", ")
}

// limitWords describes the limits of a saved job.
func limitWords(m *value.Map) string {
	var words []string
	if m.Value("test_first") == true {
		words = append(words, testFirstWords(m))
	}
	batch := m.Value("batch")
	if batch != nil {
		words = append(words, briefName(value.Str(batch))+" at a time")
	}
	if stop := m.Value("stop_above"); stop != nil && batch != nil {
		words = append(words, "stops when more than "+briefName(value.Str(stop))+" % have failed or do not answer")
	}
	return strings.Join(words, "; ")
}

// testFirstWords says when a job ends after its run with test=True.
func testFirstWords(m *value.Map) string {
	stop := m.Value("stop_above")
	if stop == nil {
		return "test=True first, and no run if one would fail or does not answer"
	}
	return "test=True first, and no run if more than " + briefName(value.Str(stop)) + " % would fail or do not answer"
}

// mayRunWords names the users and groups that may run a job, such as "alice, group ops (pam)".
func mayRunWords(m *value.Map) string {
	var systems []string
	for system := range m.All() {
		name := value.Str(system)
		var who []string
		for _, user := range m.Texts(name) {
			if group, ok := strings.CutSuffix(user, "%"); ok {
				user = "group " + group
			}
			who = append(who, user)
		}
		systems = append(systems, strings.Join(who, ", ")+" ("+name+")")
	}
	return strings.Join(systems, "; ")
}

// mayRunLines returns who may run a job as lines such as "pam: alice, ops%".
func mayRunLines(m *value.Map) string {
	var lines []string
	for system := range m.All() {
		name := value.Str(system)
		lines = append(lines, name+": "+strings.Join(m.Texts(name), ", "))
	}
	return strings.Join(lines, "\n")
}

// savedNotice returns a sentence about the last change.
func savedNotice(q url.Values) string {
	switch q.Get("done") {
	case "saved":
		return "It is saved, and the other masters know it within seconds."
	case "deleted":
		return "It is deleted."
	case "on":
		return "The entry runs again from now on."
	case "off":
		return "The entry is off until you switch it on again."
	}
	return ""
}

// savedDeletion is the data of the page that asks for the confirmation of a deletion.
type savedDeletion struct {
	savedMark
	Kind, Back string
}

// listOf returns the runner that lists objects of a kind, and the page that shows them.
func listOfSaved(kind string) (fun, page string, err error) {
	switch kind {
	case "job":
		return savedJobs, "/saved", nil
	case "target":
		return savedTargets, "/saved?kind=target", nil
	case "schedule":
		return savedSchedules, "/schedule", nil
	}
	return "", "", &Refusal{http.StatusBadRequest, "There is no such kind of saved objects."}
}

func confirmDeletion(c *Console, ctx context.Context, v *visit) (Answer, error) {
	d := savedDeletion{Kind: v.query.Get("kind")}
	fun, back, err := listOfSaved(d.Kind)
	if err != nil {
		return Answer{}, err
	}

	name := cutText(v.query.Get("name"), maxName)
	m, err := savedObject(ctx, v, fun, name)
	if err != nil {
		return Answer{}, err
	}

	d.savedMark, d.Back = c.markOf(name, m), c.base+back
	return c.render(v, "saveddelete", http.StatusOK, page{Title: "Delete the saved " + d.Kind + " " + d.Name, Data: d})
}

func deleteObject(c *Console, ctx context.Context, v *visit) (Answer, error) {
	form, err := v.Form()
	if err != nil {
		return Answer{}, err
	}

	kind := form.Get("kind")
	_, page, err := listOfSaved(kind)
	if err != nil {
		return Answer{}, err
	}

	named := value.NewMap("kind", kind, "name", cutText(form.Get("name"), maxName), "revision", revisionOf(form))
	_, problem, err := v.askRunner(ctx, deleteSaved, named)
	if err != nil {
		return Answer{}, err
	}
	if problem != "" {
		return Answer{}, &Refusal{http.StatusConflict, "Nothing was deleted: " + problem}
	}

	return c.redirectTo(page, "deleted"), nil
}

// redirectTo returns a redirection to a page that says what was done.
func (c *Console) redirectTo(page, done string) Answer {
	path, text, _ := strings.Cut(page, "?")
	q, _ := url.ParseQuery(text)
	q.Set("done", done)
	return c.redirect(path, q)
}

// revisionOf returns the revision of the object that a form shows; 0: there must be none yet.
func revisionOf(form url.Values) int64 {
	var n int64
	if _, err := fmt.Sscanf(form.Get("revision"), "%d", &n); err != nil || n < 0 {
		return 0
	}
	return n
}
