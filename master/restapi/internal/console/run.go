package console

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"

	"saltern/master/client"
	"saltern/master/jobs"
	"saltern/master/pattern"
	"saltern/master/value"
)

// manyMinions is the number of minions above which a job needs a confirmation, unless it changes
// nothing.
const manyMinions = 20

// runPage is the data of the form for a job.
type runPage struct {
	target
	Below    bool   // minions below syndics, who are not counted, get the job, too
	Lower    bool   // there are lower masters: minions may be below syndics
	Kind     string // see runKinds
	Kinds    []runKind
	Fun, Arg string
	SLS      string // state files, the first argument of functions such as state.apply
	Pillar   string // pillar of an orchestration: a map in YAML
	Test     bool   // only tell what would change
	parts
	// Functions and Files are offered for Fun and SLS. Source is the minion that has named the
	// functions, or "": they are the usual ones.
	Functions []offer
	Files     []string
	Source    string
	// Preview means that N and Minions describe the target of the job.
	Preview bool
	Minions []string
	N       int
	Doc     *boundText // documentation of the function; nil: the user has not asked for documentation
	DocFrom string     // id of the minion that sent the documentation, or "" for the master
	MaySave bool       // the user may save a job
	Back    string     // URL of the form with these fields; "" if they are too long for one
}

// typedArgs returns the arguments of a job as a user would type them in the form, one a line. ok is
// false when lines cannot express them.
func typedArgs(args []any) (text string, ok bool) {
	l := argLines(args)
	text = strings.Join(l, "\n")
	return text, value.Equal(parsedArgs(textLines(text)), append([]any{}, args...))
}

func argLines(args []any) (out []string) {
	word := func(v any) string {
		if s, ok := v.(string); ok && s != "" && s == strings.TrimSpace(s) && client.Yamlify(s) == any(s) &&
			!strings.Contains(s, "\n") {
			if _, _, named := client.ParseKwarg(s); !named {
				return s
			}
		}

		text, _ := value.JSON{Indent: -1, Escape: func(r rune) bool { return r < 0x20 }}.Text(v)
		return text
	}

	for _, a := range args {
		m, ok := a.(*value.Map)
		if !ok || m.Value("__kwarg__") != true {
			out = append(out, word(a))
			continue
		}

		for k, v := range m.All() {
			if k != "__kwarg__" {
				out = append(out, value.Str(k)+"="+word(v))
			}
		}
	}

	return out
}

// parsedArgs returns the arguments that the lines of a form express, by the rules of a command
// line.
func parsedArgs(lines []string) []any { return client.ParseArgs(lines, nil) }

func (c *Console) runOf(get func(string) string) runPage {
	return runPage{
		target: targetOf(get),
		Lower:  c.cfg.LowerMasters,
		Kind:   get("kind"),
		Fun:    strings.TrimSpace(cutText(get("fun"), maxName)),
		Arg:    cutText(get("arg"), maxTarget),
		SLS:    strings.TrimSpace(cutText(get("sls"), maxName)),
		Pillar: cutText(get("pillar"), maxTarget),
		Test:   get("test") != "",
		parts:  partsOf(get),
	}
}

// prepareRun shows the form. With look=1 in the query it lists the minions of the target, with
// doc=1 it shows the documentation of the function, with list=1 it asks a minion for its functions.
func prepareRun(c *Console, ctx context.Context, v *visit) (Answer, error) {
	d, problem := c.runOf(v.query.Get), ""
	if err := d.chooseKind(v); err != nil {
		return Answer{}, err
	}

	tell := func(err error) error {
		r, ok := errors.AsType[*Refusal](err)
		if ok && r.Code != http.StatusServiceUnavailable {
			problem = r.Text
			return nil
		}
		return err
	}

	// Do this only for a request from this page, not for a link from another site.
	asked := slices.Contains([]string{"", "none", "same-origin"}, v.HTTP.Header.Get("Sec-Fetch-Site"))
	look, doc, list := asked && v.query.Get("look") != "", asked && v.query.Get("doc") != "", asked && v.query.Get("list") != ""
	switch {
	case d.Kind != kindMinions:
		if doc && d.Fun != "" {
			d.documentOfMaster()
		}
	case !look && !doc && !list:
	case d.Target == "":
		problem = "Say which minions are meant: a target."
	default:
		ids, err := c.preview(ctx, v, d.target)
		if err = tell(err); err != nil {
			return Answer{}, err
		}

		d.setPreview(ids, problem == "")
		d.Below = c.reachesBelow(d.target)
		if doc && len(ids) > 0 && d.Fun != "" {
			if err := tell(d.document(ctx, v, ids)); err != nil {
				return Answer{}, err
			}
		}

		if list && len(ids) > 0 {
			if err := tell(c.askFunctions(ctx, v, ids)); err != nil {
				return Answer{}, err
			}
		}
	}

	if err := d.fillOffers(c, ctx, v); err != nil {
		return Answer{}, err
	}

	return c.render(v, "run", http.StatusOK, page{Title: "Run", Data: d, Problem: problem})
}

// setPreview stores the ids of the target's minions, as many as the page names.
func (d *runPage) setPreview(ids []string, known bool) {
	d.Preview, d.N = known, len(ids)
	for _, id := range ids[:min(len(ids), maxPreview)] {
		d.Minions = append(d.Minions, briefName(id))
	}
}

// isSeenBy reports whether the user may see which minions the target selects, without a job.
func (t target) isSeenBy(v *visit) bool {
	return v.mayCall("runner", "presence.minions") &&
		(t.Type == "glob" || t.Type == "list" || v.mayCall("runner", "cache.grains"))
}

// preview returns the minions of a target. If the user may not see the cached minions, it starts a
// job without effect and returns the minions that the master names.
func (c *Console) preview(ctx context.Context, v *visit, t target) ([]string, error) {
	if t.isSeenBy(v) {
		all, err := minionsOf(ctx, v)
		if err != nil {
			return nil, err
		}

		all = slices.DeleteFunc(all, func(m minion) bool { return m.Key != "accepted" })
		hit, err := t.matched(ctx, v, all)
		var ids []string
		for _, m := range all {
			if hit[m.ID] {
				ids = append(ids, m.ID)
			}
		}

		return ids, err
	}

	got, err := v.runCommand(ctx, "local_async", "test.ping", "tgt", t.targetValue(), "tgt_type", t.Type)
	if r, ok := errors.AsType[*Refusal](err); ok && r.Code == http.StatusUnauthorized {
		return nil, &Refusal{r.Code,
			"Whom the target selects cannot be shown: that takes the runners presence.minions and cache.grains, or test.ping on these minions."}
	}

	m, _ := got.(*value.Map)
	return m.Texts("minions"), err
}

// document asks one minion of the target for the documentation of the function, and stores the
// answer in d.
func (d *runPage) document(ctx context.Context, v *visit, ids []string) error {
	got, err := v.runCommand(ctx, "local", "sys.doc", "tgt", value.List(ids[:1]), "tgt_type", "list", "arg",
		[]any{d.Fun}, "timeout", int64(10))
	if r, ok := errors.AsType[*Refusal](err); ok && r.Code == http.StatusUnauthorized {
		return &Refusal{r.Code,
			"The documentation comes from a minion, by sys.doc, which external_auth does not permit you there."}
	}
	if err != nil {
		return err
	}

	d.DocFrom = briefName(ids[0])
	all, _ := got.(*value.Map)
	answer := all.Value(ids[0])
	m, ok := answer.(*value.Map)
	text := "It did not answer, or knows no such function."
	if ok && m.Len() > 0 {
		var parts []string
		for k, doc := range m.All() {
			parts = append(parts, value.Str(k)+"\n\n"+value.StrMax(doc, maxText+1))
		}
		text = strings.Join(parts, "\n\n")
	}

	t := newBudget().boundedText(text)
	d.Doc = &t
	return nil
}

// argWords returns the arguments of the form as words of a command line, one a word.
func (d *runPage) argWords() []string {
	words := textLines(d.Arg)
	if d.SLS != "" {
		words = append([]string{d.SLS}, words...)
	}
	return words
}

// problem returns what is wrong with the form, or "".
func (d *runPage) problem() string {
	switch {
	case d.Kind == kindMinions && d.Target == "":
		return "Say which minions are meant: a target."
	case d.Kind == kindOrchestration:
		if d.SLS == "" {
			return "Name the state files of the orchestration, as orch.deploy."
		}
	case d.Fun == "" || strings.ContainsAny(d.Fun, " ,") || !strings.Contains(d.Fun, "."):
		return "Name one function, as " + d.exampleFunction() + "."
	}

	switch {
	case len(d.argWords()) > maxArgs:
		return "Too many arguments."
	case d.SLS != "" && d.Kind != kindOrchestration && !takesStates(d.Fun):
		return "State files are for functions such as state.apply. Empty that field, or choose such a function."
	case d.Test && d.Kind != kindOrchestration && !obeysTest(d.Fun):
		// Functions such as cmd.run take test=True, ignore it, and run for real.
		return "Only states can tell what would change: functions such as state.apply. This one would run for real."
	}

	return d.parts.problem()
}

// startJob starts the job and redirects the browser to the job's page. A job for many minions that
// may change something is shown first and needs a confirmation.
func startJob(c *Console, ctx context.Context, v *visit) (Answer, error) {
	form, err := v.Form()
	if err != nil {
		return Answer{}, err
	}

	d := c.runOf(form.Get)
	if err := d.chooseKind(v); err != nil {
		return Answer{}, err
	}

	againWith := func(code int, problem string) (Answer, error) {
		err := d.fillOffers(c, ctx, v)
		if err != nil && code != http.StatusServiceUnavailable { // then the problem says more
			return Answer{}, err
		}
		return c.render(v, "run", code, page{Title: "Run", Data: d, Problem: problem})
	}
	again := func(problem string) (Answer, error) { return againWith(http.StatusBadRequest, problem) }

	if problem := d.problem(); problem != "" {
		return again(problem)
	}

	if d.Kind != kindMinions {
		jid, problem, err := d.startOnMaster(ctx, v)
		if err != nil || problem != "" {
			return againUnless(err, problem, again)
		}
		return c.redirect("/task", url.Values{"jid": {jid}}), nil
	}

	if d.mayChange() {
		ask, err := d.isForMany(c, ctx, v)
		if err != nil {
			return Answer{}, err
		}
		if changed := d.differsFrom(form); ask && (form.Get("sure") == "" || changed != "") {
			d.Back = d.formURL(c.base)
			return c.render(v, "runconfirm", http.StatusOK, page{Title: "Run on many minions", Data: d, Problem: changed})
		}
	}

	jid, err := d.publish(ctx, v)
	r, ok := errors.AsType[*Refusal](err)
	if ok && (r.Code == http.StatusBadRequest || r.Code == http.StatusServiceUnavailable) {
		return againWith(r.Code, capital(r.Text))
	}
	if err != nil {
		return Answer{}, err
	}

	if !jobs.Valid(jid) {
		return again("The target selects no minion with an accepted key.")
	}

	return c.redirect("/job", url.Values{"jid": {jid}}), nil
}

// formURL returns the URL of the form with its fields, or "" if they are too long for one.
func (d *runPage) formURL(base string) string {
	q := url.Values{
		"kind": {d.Kind},
		"tgt":  {d.Target},
		"type": {d.Type},
		"fun":  {d.Fun},
		"sls":  {d.SLS},
		"arg":  {d.Arg},
	}
	d.parts.fillQuery(q)
	if text := q.Encode(); len(text) < 4096 {
		return base + "/run?" + text
	}
	return ""
}

// CanTest reports whether the function can tell what it would change.
func (d runPage) CanTest() bool { return obeysTest(d.Fun) }

// againUnless returns err, or the form again with a problem.
func againUnless(err error, problem string, again func(string) (Answer, error)) (Answer, error) {
	if err != nil {
		return Answer{}, err
	}
	return again(problem)
}

// mayChange reports whether the job may change something on minions.
func (d *runPage) mayChange() bool { return !d.Test && d.Fun != "test.ping" && d.Fun != "test.version" }

// isForMany reports whether the target selects more than manyMinions, or nobody may tell the user how
// many, and stores them for the confirmation.
func (d *runPage) isForMany(c *Console, ctx context.Context, v *visit) (bool, error) {
	if d.Type == "list" {
		ids := d.targetValue().([]any)
		for _, id := range ids[:min(len(ids), maxPreview)] {
			d.Minions = append(d.Minions, briefName(id.(string)))
		}
		d.Preview, d.N = true, len(ids)
		return d.N > manyMinions, nil
	}

	if !d.isSeenBy(v) { // to count them would take a job on all of them
		return d.Type != "glob" || pattern.HasMeta(d.Target), nil
	}

	d.Below = c.reachesBelow(d.target)
	ids, err := c.preview(ctx, v, d.target)
	if r, ok := errors.AsType[*Refusal](err); ok && r.Code != http.StatusServiceUnavailable {
		return true, nil
	}
	if err != nil {
		return false, err
	}

	d.setPreview(ids, true)
	return d.N > manyMinions || d.Below, nil
}

// reachesBelow reports whether a job may get to minions below syndics, which only their masters know: whether the
// target is more than the names of minions.
func (c *Console) reachesBelow(t target) bool {
	named := t.Type == "list" || t.Type == "glob" && !pattern.HasMeta(t.Target)
	return c.cfg.LowerMasters && !named
}

// differsFrom returns how the target has changed for the worse since the confirmation was shown, or "".
func (d *runPage) differsFrom(form url.Values) string {
	seen, err := strconv.Atoi(form.Get("n"))
	counted := err == nil
	switch {
	case form.Get("sure") == "":
		return ""
	case counted && d.Preview && d.N > seen:
		return fmt.Sprintf("The target has grown from %d to %d minions. Nothing was run.", seen, d.N)
	case counted != d.Preview:
		return "Whom the target selects was shown otherwise before. Nothing was run."
	}
	return ""
}

// publish starts the job on minions, and returns its id, or "" if the target selects no minion.
func (d *runPage) publish(ctx context.Context, v *visit) (jid string, err error) {
	args := parsedArgs(d.argWords())
	if d.Test {
		args = withNamed(args, "test", true)
	}

	fields := []any{"tgt", d.targetValue(), "tgt_type", d.Type, "arg", args}
	got, err := v.runCommand(ctx, "local_async", d.Fun, append(fields, d.parts.fields()...)...)
	if isUnauthorized(err) {
		return "", &Refusal{http.StatusForbidden,
			"The master refused: external_auth does not permit you " + briefName(d.Fun) + " on these minions."}
	}
	if err != nil {
		return "", err
	}

	m, _ := got.(*value.Map)
	return m.Str("jid"), nil
}

// withNamed returns arguments with one more named argument, which replaces one of that name.
func withNamed(args []any, name string, v any) []any {
	if n := len(args); n > 0 {
		if m, ok := args[n-1].(*value.Map); ok && m.Value("__kwarg__") == true {
			m = m.Clone()
			m.Set(name, v)
			return append(slices.Clone(args[:n-1]), m)
		}
	}
	return append(args, value.NewMap("__kwarg__", true, name, v))
}
