package console

import (
	"context"
	"errors"
	"net/http"
	"net/url"
	"slices"
	"strings"

	"saltern/master/client"
	"saltern/master/jobs"
	"saltern/master/value"
)

// runPage is the data of the form for a job.
type runPage struct {
	target
	Fun, Arg string
	// Preview means that N and Minions describe the target of the job.
	Preview bool
	Minions []string
	N       int
	Doc     *boundText // documentation of the function; nil: the user has not asked for documentation
	DocFrom string     // id of the minion that sent the documentation
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

func runOf(get func(string) string) runPage {
	return runPage{
		target: targetOf(get),
		Fun:    strings.TrimSpace(cutText(get("fun"), maxName)),
		Arg:    cutText(get("arg"), maxTarget),
	}
}

// prepareRun shows the form. With look=1 in the query it lists the minions of the target, with
// doc=1 it shows the documentation of the function.
func prepareRun(c *Console, ctx context.Context, v *visit) (Answer, error) {
	d, problem := runOf(v.query.Get), ""
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
	look, doc := asked && v.query.Get("look") != "", asked && v.query.Get("doc") != ""
	if (look || doc) && d.Target != "" {
		ids, err := c.preview(ctx, v, d.target)
		if err = tell(err); err != nil {
			return Answer{}, err
		}

		d.Preview, d.N = problem == "", len(ids)
		if doc && len(ids) > 0 && d.Fun != "" {
			if err := tell(d.document(ctx, v, ids)); err != nil {
				return Answer{}, err
			}
		}

		d.Minions = ids[:min(len(ids), maxPreview)]
		for i := range d.Minions {
			d.Minions[i] = briefName(d.Minions[i])
		}
	} else if look || doc {
		problem = "Say which minions are meant: a target."
	}

	return c.render(v, "run", http.StatusOK, page{Title: "Run", Data: d, Problem: problem})
}

// preview returns the minions of a target. If the user may not see the cached minions, it starts a
// job without effect and returns the minions that the master names.
func (c *Console) preview(ctx context.Context, v *visit, t target) ([]string, error) {
	if v.mayCall("runner", "presence.minions") &&
		(t.Type == "glob" || t.Type == "list" || v.mayCall("runner", "cache.grains")) {
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

// startJob starts the job and redirects the browser to the job's page.
func startJob(c *Console, ctx context.Context, v *visit) (Answer, error) {
	form, err := v.Form()
	if err != nil {
		return Answer{}, err
	}

	d := runOf(form.Get)
	again := func(problem string) (Answer, error) {
		return c.render(v, "run", http.StatusBadRequest, page{Title: "Run", Data: d, Problem: problem})
	}
	words := textLines(d.Arg)
	switch {
	case d.Target == "":
		return again("Say which minions are meant: a target.")
	case d.Fun == "" || strings.ContainsAny(d.Fun, " ,") || !strings.Contains(d.Fun, "."):
		return again("Name one function, as test.ping.")
	case len(words) > maxArgs:
		return again("Too many arguments.")
	}

	got, err := v.runCommand(ctx, "local_async", d.Fun, "tgt", d.targetValue(), "tgt_type", d.Type, "arg", parsedArgs(words))
	if r, ok := errors.AsType[*Refusal](err); ok && r.Code == http.StatusUnauthorized {
		return Answer{}, &Refusal{http.StatusForbidden,
			"The master refused: external_auth does not permit you " + briefName(d.Fun) + " on these minions."}
	}
	if err != nil {
		return Answer{}, err
	}

	m, _ := got.(*value.Map)
	jid := m.Str("jid")
	if !jobs.Valid(jid) {
		return again("The target selects no minion with an accepted key.")
	}

	return c.redirect("/job", url.Values{"jid": {jid}}), nil
}
