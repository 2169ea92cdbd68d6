package console

import (
	"context"
	"fmt"
	"net/http"
	"net/url"
	"strings"

	"saltern/master/value"
)

// Runners of the page.
const (
	pillarDiff  = "pillar.diff"
	topDiff     = "top.diff"
	gitBranches = "git.branches"
	gitReports  = "git.reports"
)

// Bounds of the page.
const (
	maxDiffRefs    = 600 // branches and tags that the form offers
	maxDiffGroups  = 50
	maxDiffLines   = 200 // of one group
	maxDiffNames   = 12  // minions of one group
	maxDiffReports = 20
)

// diffPage is the page that compares branches.
type diffPage struct {
	target
	Kind, Ref, From, Remote, Into string

	MayPillars, MayStates bool

	Remotes  []string // that the form offers
	Refs     []string
	Reported []diffReported
	Result   *diffResult // nil: nothing was compared yet
}

// diffReported is a commit whose status was set at a git server.
type diffReported struct {
	Remote, Branch, Commit, State, Class, Description string
	URL                                               string
	When                                              moment
}

// diffResult holds what pillar.diff or top.diff has returned.
type diffResult struct {
	Title, Class  string
	From, To      string // what was compared with what
	Groups        []diffGroup
	MoreGroups    int64 // groups that the page or the master leaves out
	MoreMinions   int64 // minions in none of the groups
	Untold        []diffUntold
	MoreUntold    int64
	Notes         []string
	WithoutGrains int64
}

type diffGroup struct {
	Title, Names string
	Lines        []diffLine
	More         int64
}

type diffUntold struct{ SLS, Reason, Minions string }

func (v *visit) mayDiff() bool {
	return v.mayCall("runner", pillarDiff) || v.mayCall("runner", topDiff)
}

// showDiff shows the form. The query fills it, as the link of a status at a git server does; a
// comparison needs the button, because it takes half of the processors for seconds.
func showDiff(c *Console, ctx context.Context, v *visit) (Answer, error) {
	d, err := c.diffForm(ctx, v, v.query.Get)
	if err != nil {
		return Answer{}, err
	}
	return c.renderDiff(v, d, http.StatusOK, "")
}

func (c *Console) renderDiff(v *visit, d *diffPage, code int, problem string) (Answer, error) {
	return c.render(v, "diff", code, page{Title: "What a branch will change", Problem: problem, Data: d})
}

// compareBranches compares, and shows the result below the form.
func compareBranches(c *Console, ctx context.Context, v *visit) (Answer, error) {
	form, err := v.Form()
	if err != nil {
		return Answer{}, err
	}
	d, err := c.diffForm(ctx, v, form.Get)
	if err != nil {
		return Answer{}, err
	}
	if d.Ref == "" {
		return c.renderDiff(v, d, http.StatusBadRequest, "Name the branch, tag or commit to compare.")
	}

	fun := pillarDiff
	if d.Kind == "states" {
		fun = topDiff
	}
	named := value.NewMap("ref", d.Ref, "tgt", d.targetValue(), "tgt_type", d.Type)
	for key, text := range map[string]string{"from": d.From, "remote": d.Remote, "into": d.Into} {
		if text != "" {
			named.Set(key, text)
		}
	}
	got, problem, err := v.askRunner(ctx, fun, named)
	if err != nil {
		return Answer{}, err
	}
	if problem == "" && got.Value("groups") == nil { // such as that no remote has the ref
		problem = got.Str("text")
	}
	if problem != "" {
		return c.renderDiff(v, d, http.StatusBadRequest, briefText(problem))
	}

	d.Result = diffResultOf(got)
	return c.renderDiff(v, d, http.StatusOK, "")
}

// diffForm returns the page with the form that get fills.
func (c *Console) diffForm(ctx context.Context, v *visit, get func(string) string) (*diffPage, error) {
	if !v.mayDiff() {
		return nil, &Refusal{http.StatusUnauthorized,
			"Comparing takes the runners pillar.diff or top.diff: external_auth permits you neither."}
	}

	text := func(key string) string { return strings.TrimSpace(cutText(get(key), maxName)) }
	d := &diffPage{
		target:     targetOf(get),
		Kind:       text("kind"),
		Ref:        text("ref"),
		From:       text("from"),
		Remote:     strings.TrimSpace(cutText(get("remote"), maxSentence)),
		Into:       text("into"),
		MayPillars: v.mayCall("runner", pillarDiff),
		MayStates:  v.mayCall("runner", topDiff),
	}
	if d.Target == "" {
		d.Target = "*"
	}
	if d.Kind != "states" && d.Kind != "pillars" || d.Kind == "pillars" && !d.MayPillars || d.Kind == "states" && !d.MayStates {
		d.Kind = "states"
		if d.MayPillars {
			d.Kind = "pillars"
		}
	}

	if err := d.offerRefs(ctx, v); err != nil {
		return nil, err
	}
	return d, d.addReports(c, ctx, v)
}

// offerRefs adds the remotes, branches and tags that the form offers, if the user may list them.
func (d *diffPage) offerRefs(ctx context.Context, v *visit) error {
	got, err := v.listFor(ctx, gitBranches)
	if err != nil || got == nil {
		return err
	}
	m, _ := got.(*value.Map)
	seen := map[string]bool{}
	for _, u := range m.Keys() {
		if len(d.Remotes) < maxRemotes && u == briefText(u) {
			d.Remotes = append(d.Remotes, u)
		}
		for _, kind := range []string{"branches", "tags"} {
			for _, name := range m.Map(u).Map(kind).Keys() {
				if len(d.Refs) < maxDiffRefs && !seen[name] && name == briefName(name) {
					seen[name] = true
					d.Refs = append(d.Refs, name)
				}
			}
		}
	}
	return nil
}

// listFor returns the answer of a runner without arguments, or nil if the user may not call it.
func (v *visit) listFor(ctx context.Context, fun string) (any, error) {
	if !v.mayCall("runner", fun) {
		return nil, nil
	}
	got, err := v.runCommand(ctx, "runner", fun)
	if isUnauthorized(err) {
		return nil, nil
	}
	return got, err
}

// addReports adds the commits that were reported last, if the user may list them.
func (d *diffPage) addReports(c *Console, ctx context.Context, v *visit) error {
	got, err := v.listFor(ctx, gitReports)
	if err != nil || got == nil {
		return err
	}
	entries, _ := got.([]any)
	for _, e := range entries {
		entry, _ := e.(*value.Map)
		for _, kind := range []string{"waiting", "reported"} {
			for _, x := range entry.List(kind) {
				if len(d.Reported) >= maxDiffReports {
					return nil
				}
				m, _ := x.(*value.Map)
				d.Reported = append(d.Reported, c.diffReportedOf(entry, m))
			}
		}
	}
	return nil
}

// diffReportedOf returns a commit of an entry of git.reports. Its link leads to the comparison that was reported.
func (c *Console) diffReportedOf(entry, m *value.Map) diffReported {
	compared := url.Values{"ref": {m.Str("commit")}}
	for field, text := range map[string]string{"remote": entry.Str("url"), "into": entry.Str("into")} {
		if text != "" {
			compared.Set(field, text)
		}
	}

	r := diffReported{
		Remote:      briefName(entry.Str("remote")),
		Branch:      briefName(m.Str("branch")),
		Commit:      briefName(cutText(m.Str("commit"), 12)),
		State:       briefName(m.Str("state")),
		Class:       "differs",
		Description: briefText(m.Str("description")),
		When:        c.momentOf(m.Str("since")),
		URL:         c.base + "/diff?" + compared.Encode(),
	}
	switch r.State {
	case "":
		r.State = "waiting"
	case "success":
		r.Class = "ok"
		if strings.Contains(r.Description, "differ") { // all minions were compared, which says nothing of the outcome
			r.Class = "faint"
		}
	case "failure", "error":
		r.Class = "failed"
	}
	if m.Bool("refused") {
		r.State = "refused by the server"
		r.Class = "failed"
	}
	return r
}

// diffResultOf reads the answer of a comparison. Whoever has written the branch has chosen its names and texts;
// the master has hidden the secrets.
func diffResultOf(m *value.Map) *diffResult {
	number := func(m *value.Map, key string) int64 {
		n, _ := m.Int(key)
		return n
	}
	compared, differ := number(m, "compared"), number(m, "differ")
	d := &diffResult{
		Class:         "ok",
		From:          briefName(m.Str("from")),
		To:            briefName(m.Str("to")),
		MoreMinions:   number(m, "not_shown"),
		MoreUntold:    number(m, "cannot_be_told_not_shown"),
		WithoutGrains: number(m, "without_grains"),
	}
	switch {
	case compared == 0:
		d.Title = "No minion could be compared"
		d.Class = "failed"
	case differ == 0:
		d.Title = fmt.Sprintf("Nothing differs on %d minions", compared)
	default:
		d.Title = fmt.Sprintf("%d of %d minions differ", differ, compared)
		d.Class = "differs"
	}
	for _, note := range firstLines(value.List(m.Texts("notes"))) {
		d.Notes = append(d.Notes, briefText(value.Str(note)))
	}

	for _, x := range m.List("groups") {
		if len(d.Groups) >= maxDiffGroups {
			d.MoreGroups++
			continue
		}
		group, _ := x.(*value.Map)
		d.Groups = append(d.Groups, diffGroupOf(group, number(group, "count"), number(group, "changes_not_shown")))
	}
	for _, x := range m.List("cannot_be_told") {
		if len(d.Untold) >= maxDiffGroups {
			d.MoreUntold++
			continue
		}
		f, _ := x.(*value.Map)
		reason := briefText(f.Str("reason")) + "; its text differs, or what it imports"
		if f.Bool("text_is_same") {
			reason = briefText(f.Str("reason")) + "; its text is the same"
		}
		minions := fmt.Sprintf("%d, such as %s", number(f, "minions"), briefName(f.Str("for_example")))
		d.Untold = append(d.Untold, diffUntold{briefName(f.Str("sls")), reason, minions})
	}
	return d
}

func diffGroupOf(m *value.Map, count, more int64) diffGroup {
	names := m.Texts("minions")
	g := diffGroup{Title: fmt.Sprintf("%d minions", count), More: more}
	if count == 1 {
		g.Title = "One minion"
	}
	for i, name := range names[:min(len(names), maxDiffNames)] {
		if i > 0 {
			g.Names += ", "
		}
		g.Names += briefName(name)
	}
	if rest := count - int64(min(len(names), maxDiffNames)); rest > 0 && g.Names != "" {
		g.Names += fmt.Sprintf(" and %d more", rest)
	}

	add := func(class, form string, args ...any) {
		if len(g.Lines) >= maxDiffLines {
			g.More++
			return
		}
		g.Lines = append(g.Lines, diffLine{class, briefText(fmt.Sprintf(form, args...))})
	}
	for _, sls := range m.Texts("top_removed") {
		add("removed", "− SLS %s", sls)
	}
	for _, sls := range m.Texts("top_added") {
		add("added", "+ SLS %s", sls)
	}
	for _, x := range m.List("changes") {
		change, _ := x.(*value.Map)
		path := change.Str("path")
		from := change.Str("from")
		to := change.Str("to")
		switch change.Str("change") {
		case "added":
			add("added", "+ %s: %s", path, to)
		case "removed":
			add("removed", "− %s: %s", path, from)
		default:
			if from == to {
				add("", "~ %s: %s changes", path, to)
				continue
			}
			add("", "~ %s: %s → %s", path, from, to)
		}
	}
	return g
}
