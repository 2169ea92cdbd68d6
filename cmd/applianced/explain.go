package main

import (
	"cmp"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"saltern/internal/control"
	"saltern/internal/printable"
	"saltern/supervisor/status"
)

// explainCommand returns the verb that tells why a minion does not answer.
func explainCommand(f *flags) *cobra.Command {
	var q control.ExplainQuestion
	cmd := &cobra.Command{
		Use:   "explain MINION",
		Short: "Say why a minion does not answer, and what is known of it",
		Args:  cobra.ExactArgs(1),
		Long: `explain asks this node's master, and by it the masters of all nodes: the key, the
connection, the last answers, open jobs, which lines of top files select the minion,
and which file has which key of its pillar. Values of the pillar are not shown. The
minion is sent a question (saltutil.running), unless --no-ask is given.

It exits with 0 when the minion answers, 2 when it does not, 1 when it cannot be
told: with --no-ask a minion that is connected may answer, or not.`,
		Example: `  applianced explain web1
  applianced explain web1 --key nginx:port
  applianced explain web1 --user alice --fun state.apply
  applianced explain web1 --json | jq -r '.causes[0].code'`,
	}

	cmd.Flags().StringVar(&q.Key, "key", "", "say only which files have this `KEY` of the pillar (a:b)")
	cmd.Flags().StringVar(&q.User, "user", "", "say which rule lets this `USER` run --fun on the minion")
	cmd.Flags().StringVar(&q.Function, "fun", "", "`FUNCTION` for --user")
	cmd.Flags().BoolVar(&q.Silent, "no-ask", false, "send nothing to the minion")
	return answering[control.Explanation]{
		json: "print the explanation for machines",
		ask: func(cmd *cobra.Command, args []string) (control.Explanation, error) {
			q.Minion = args[0]
			if (q.User == "") != (q.Function == "") {
				return control.Explanation{}, misused("explain: --user and --fun go together")
			}
			return f.client().Explain(cmd.Context(), q)
		},
		print: func(cmd *cobra.Command, e control.Explanation) error { return writeExplanation(cmd.OutOrStdout(), e) },
		code:  exitOfExplanation,
	}.verb(cmd)
}

// exitOfExplanation returns the exit code: nobody knows whether a minion answers that was not asked.
func exitOfExplanation(e control.Explanation) int {
	if len(e.Causes) > 0 && e.Causes[0].Code == control.NotAsked {
		return status.ExitUnknown
	}
	return degradedIf(!e.Answers)
}

// page is a text of lines, each with a word in front.
type page struct{ strings.Builder }

// line writes a line with a word in front. A line without a text is left out.
func (p *page) line(word, format string, args ...any) {
	if text := fmt.Sprintf(format, args...); text != "" {
		fmt.Fprintf(p, "%-13s %s\n", word, printable.Clean(text))
	}
}

func writeExplanation(w io.Writer, e control.Explanation) error {
	var p page
	p.line("MINION", "%s, as the master of %s sees it", e.Minion, e.Node)
	for i, c := range e.Causes {
		word := "WHY"
		if i > 0 {
			word = "ALSO"
		}
		p.line(word, "%s", c.Text)
		if c.Next != "" {
			p.line("", "next: %s", c.Next)
		}
	}

	p.ofMinion(&e)
	p.ofRuns(&e)
	p.ofTop("states", e.States)
	p.ofPillar(&e.Pillar)
	p.line("groups", "%s", strings.Join(e.Groups, ", "))
	if r := e.Rights; r != nil {
		word := "no"
		if r.Allowed {
			word = "yes, by " + strings.Join(r.Rules, "; ")
		}
		p.line("rights", "%s", word)
		p.line("", "%s", r.Note)
	}
	p.line("silenced", "%s", strings.Join(e.Silences, "; "))
	_, err := io.WriteString(w, p.String())
	return err
}

// ofMinion writes the key and the connection.
func (p *page) ofMinion(e *control.Explanation) {
	k := &e.Key
	p.line("key", "%s %s", k.State, k.Fingerprint)
	if k.By != "" {
		p.line("", "%s by %s, %s", k.Action, k.By, since(k.Since, e.Time))
	}
	if k.Denied != "" {
		p.line("", "another key was denied: %s", k.Denied)
	}

	c := &e.Connection
	state := "not connected"
	if c.Connected {
		state = "connected"
		if c.Node != "" {
			state += " to " + c.Node
		}
	}
	if c.Address != "" {
		state += ", from " + c.Address
	}
	p.line("connection", "%s; last heard %s", state, since(c.Seen, e.Time))
	if !c.SignIn.IsZero() {
		p.line("", "signed in at this master %s", since(c.SignIn, e.Time))
	}
	for _, node := range slices.Sorted(maps.Keys(c.Unasked)) {
		p.line("", "%s could not be asked: %s", node, c.Unasked[node])
	}
	if c.Version != "" {
		p.line("version", "Salt %s", c.Version)
	}
	if !e.GrainsChanged.IsZero() {
		p.line("grains", "as of %s", since(e.GrainsChanged, e.Time))
	}
}

// ofRuns writes what the minion has run, and what it has not answered.
func (p *page) ofRuns(e *control.Explanation) {
	if a := e.Answer; a != nil {
		p.line("last answer", "%s: %s (job %s), %s", a.Function, a.Result, a.JID, since(a.Time, e.Time))
	}
	if r := e.Run; r != nil {
		p.line("last states", "%s: %s (job %s), %s", r.Function, r.Result, r.JID, since(r.Time, e.Time))
		for _, state := range r.Failed {
			p.line("", "failed: %s", state)
		}
		for _, state := range r.Drifted {
			p.line("", "drifted: %s", state)
		}
	}
	for _, job := range e.Unanswered {
		p.line("no answer to", "%s by %s (job %s), %s", job.Function, job.User, job.JID, since(job.Start, e.Time))
	}
	if len(e.Unanswered) == 0 && !e.UnansweredSince.IsZero() {
		p.line("no answer to", "no job of the last day, counted since %s", since(e.UnansweredSince, e.Time))
	}
}

// ofTop writes the lines of top files.
func (p *page) ofTop(what string, top control.ExplainedTop) {
	for _, l := range top.Matches {
		p.line(what, "%s: %s (top file of %s, %s) gives %s", l.Env, l.Target, l.Top, l.Type, strings.Join(l.SLS, ", "))
	}
	if len(top.Matches) == 0 && (top.Note == "" || len(top.Others) > 0) {
		p.line(what, "no line of a top file selects it")
	}
	for _, l := range top.Others {
		p.line("  not", "%s: %s: %s", l.Env, l.Target, l.Why)
	}
	if top.More > 0 {
		p.line("  not", "and %d more lines", top.More)
	}
	p.line(what, "%s", top.Note)
}

// ofPillar writes which file has which key.
func (p *page) ofPillar(pillar *control.ExplainedPillar) {
	if pillar.Problem == "" || len(pillar.Top.Matches) > 0 {
		p.ofTop("pillar", pillar.Top)
	}
	for _, k := range pillar.Keys {
		from := cmp.Or(k.File, "the option pillar_opts")
		if k.External != "" {
			from = "ext_pillar " + k.External
		}
		if k.Replaced {
			from += " (replaced)"
		}
		p.line("  key", "%s: %s", k.Key, from)
	}
	if pillar.Faults > 0 {
		p.line("pillar", "%d faults: the log of the master has them", pillar.Faults)
	}
	p.line("pillar", "%s", pillar.Problem)
}

// since returns how long before now a time was.
func since(at, now time.Time) string {
	if at.IsZero() {
		return "never"
	}
	return status.Age(max(0, now.Sub(at))) + " ago"
}
