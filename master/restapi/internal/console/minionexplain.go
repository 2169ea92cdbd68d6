package console

import (
	"cmp"
	"context"
	"strings"

	"saltern/master/value"
)

// explainRunner is the runner that explains a minion (package explain).
const explainRunner = "fleet.explain"

// linesOfExplanation bounds each list of an explanation.
const linesOfExplanation = 25

// explanation is why a minion does not answer, or that it does.
type explanation struct {
	Answers bool
	Causes  []explainedCause
	Node    string // whose master explains
	Facts   []explainedFact
	Top     []explainedLine // lines of top files that select the minion
	Others  []explainedLine // lines that do not
	More    int             // further lines that do not
	TopNote string          // what is wrong with the top files
	Problem string          // why there is no explanation; "" if there is one
}

// Facts whose text is a fingerprint.
const (
	factFingerprint = "Fingerprint"
	factOtherKey    = "Another key under this id"
)

type explainedCause struct{ Code, Text, Next string }

type explainedFact struct {
	Word, Text string
	Code       bool // Text is code, such as a fingerprint
	When       moment
}

type explainedLine struct{ Env, Target, SLS, Why string }

// mayExplain reports whether the user may have minions explained.
func (v *visit) mayExplain() bool { return v.mayCall("runner", explainRunner) }

// explain asks the master why a minion does not answer. The master asks the minion, which takes seconds.
// It returns nil if the user may not know.
func (c *Console) explain(ctx context.Context, v *visit, id string) (*explanation, error) {
	if !v.mayExplain() {
		return nil, nil
	}
	got, problem, err := v.askRunner(ctx, explainRunner, value.NewMap("minion", id))
	if isUnauthorized(err) {
		return nil, nil // the master refuses the user after all
	}
	if err != nil {
		return nil, err
	}
	if problem == "" && len(got.List("causes")) == 0 {
		problem = "The master does not explain it."
	}
	if problem != "" {
		return &explanation{Problem: briefText(problem)}, nil
	}
	return c.explanationOf(got), nil
}

// explanationOf returns the explanation in the answer of fleet.explain. Minions, files and other nodes have
// chosen its texts.
func (c *Console) explanationOf(m *value.Map) *explanation {
	d := &explanation{Answers: m.Value("answers") == true, Node: briefName(m.Str("node"))}
	for _, x := range firstLines(m.List("causes")) {
		cause, _ := x.(*value.Map)
		d.Causes = append(d.Causes, explainedCause{
			Code: briefName(cause.Str("code")),
			Text: briefText(cause.Str("text")),
			Next: briefText(cause.Str("next")),
		})
	}

	d.addFacts(c, m)
	top := m.Map("states")
	d.TopNote = briefText(top.Str("note"))
	d.Top = topLines(top.List("matches"))
	d.Others = topLines(top.List("others"))
	more, _ := top.Int("more")
	d.More = max(0, int(more)) + len(top.List("matches")) - len(d.Top) + len(top.List("others")) - len(d.Others)
	return d
}

// addFacts adds what the page does not show elsewhere.
func (d *explanation) addFacts(c *Console, m *value.Map) {
	key, connection := m.Map("key"), m.Map("connection")
	add := func(word, text, when string) {
		if text != "" {
			d.Facts = append(d.Facts, explainedFact{
				Word: word,
				Text: briefText(text),
				Code: word == factFingerprint || word == factOtherKey,
				When: c.momentOf(when),
			})
		}
	}

	add(factFingerprint, key.Str("fingerprint"), "")
	add(factOtherKey, key.Str("denied"), "")
	add("Key "+cmp.Or(briefName(key.Str("state")), "decided")+" by", key.Str("by"), key.Str("since"))
	add("Similar ids", strings.Join(key.Texts("near"), ", "), "")
	add("Connected to", connection.Str("node"), "")
	add("Salt", connection.Str("version"), "")
	for k, why := range connection.Map("unasked").All() {
		if len(d.Facts) < linesOfExplanation {
			add("Not asked", value.StrMax(k, maxName)+": "+value.StrMax(why, maxName), "")
		}
	}

	add("Runs now", jobsOf(m.List("running")), "")
	if jobs := jobsOf(m.List("unanswered")); jobs != "" {
		add("No answer to", "in the last day: "+jobs, "")
	}
	add("Nodegroups", strings.Join(m.Texts("nodegroups"), ", "), "")
	add("Silenced", strings.Join(m.Texts("silences"), "; "), "")
	add("Pillar", m.Map("pillar").Str("problem"), "")
}

// jobsOf returns the jobs in a list of an explanation as text.
func jobsOf(list []any) string {
	var out []string
	for _, x := range firstLines(list) {
		job, _ := x.(*value.Map)
		out = append(out, cutText(job.Str("function"), maxName)+" (job "+cutText(job.Str("jid"), maxName)+")")
	}
	return strings.Join(out, ", ")
}

func topLines(list []any) (lines []explainedLine) {
	for _, x := range firstLines(list) {
		m, _ := x.(*value.Map)
		target := m.Str("target")
		if kind := m.Str("type"); kind != "" && kind != "compound" && kind != "glob" {
			target += " (" + kind + ")"
		}
		lines = append(lines, explainedLine{
			Env:    briefName(cmp.Or(m.Str("env"), m.Str("top"))),
			Target: briefName(target),
			SLS:    briefText(strings.Join(m.Texts("sls"), ", ")),
			Why:    briefText(m.Str("why")),
		})
	}
	return lines
}

func firstLines(list []any) []any { return list[:min(len(list), linesOfExplanation)] }
