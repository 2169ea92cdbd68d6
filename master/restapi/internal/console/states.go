package console

import (
	"cmp"
	"slices"
	"strconv"
	"strings"

	"saltern/internal/printable"
	"saltern/master/value"
)

// states holds the results of a state run of one minion.
type states struct {
	Rows                               []state
	More                               int // number of states that are not shown
	Succeeded, Changed, Failed, Differ int
	Took                               string // "" if the minion does not say
}

// Words returns how many states came to what, without what none came to, and how long they took. noun is what
// the page calls a state.
func (s *states) Words(noun string) string {
	all := s.Failed + s.Differ + s.Succeeded
	text := strconv.Itoa(all) + " " + noun
	if all != 1 {
		text += "s"
	}
	text += ": "
	var parts []string
	for _, part := range []struct {
		n    int
		word string
	}{{s.Failed, "failed"}, {s.Differ, "would change"}, {s.Changed, "changed"}, {s.Succeeded - s.Changed, "ok"}} {
		if part.n > 0 {
			parts = append(parts, strconv.Itoa(part.n)+" "+part.word)
		}
	}
	text += strings.Join(parts, ", ")
	if s.Took != "" {
		text += "; took " + s.Took
	}
	return text
}

// state is the result of one state.
type state struct {
	Word     string // failed, changed, would change or ok
	Class    string // class in the style sheet
	Function string
	ID, Name string
	Comment  boundText
	Changes  boundText
	Diff     []diffLine
	DiffCut  int // bytes of the diff that were cut off
	Warnings boundText
	Duration string
	Open     bool
	rank     int
	run      float64
	ret      *value.Map
}

// diffLine is one line of a diff.
type diffLine struct{ Class, Text string }

// isHighstate reports whether a return comes from a state run: a map from tags of four parts to
// maps with a result (salt/output/highstate.py).
func isHighstate(m *value.Map) bool {
	if m.Len() == 0 {
		return false
	}

	for k, v := range m.All() {
		tag, ok := k.(string)
		s, isMap := v.(*value.Map)
		if !ok || !isMap || s == nil || strings.Count(tag, "_|-") < 3 {
			return false
		}

		if _, ok := s.Get("result"); !ok {
			return false
		}
	}

	return true
}

// statesOf returns the states in a return, at most stateLimit of them: first those that failed,
// then those that changed something or would change it, then the others; each group in the order of
// the run.
func statesOf(m *value.Map, b *budget, stateLimit int) *states {
	out := &states{}
	var all []state
	for k, v := range m.All() {
		s := stateOf(k.(string), v.(*value.Map))
		switch s.rank {
		case 0:
			out.Failed++
		case 1:
			out.Differ++
		default:
			out.Succeeded++
		}

		if s.Class == "changed" {
			out.Changed++
		}

		all = append(all, s)
	}

	if took := secondsOf(m); took > 0 {
		out.Took = durationWord(took)
	}
	slices.SortStableFunc(all, func(a, b state) int { return cmp.Or(a.rank-b.rank, cmp.Compare(a.run, b.run)) })
	if stateLimit = min(stateLimit, b.states); len(all) > stateLimit {
		out.More, all = len(all)-stateLimit, all[:stateLimit]
	}

	b.states -= len(all)
	for i := range all {
		all[i].fillTexts(b)
	}

	out.Rows = all
	return out
}

// secondsOf returns how long the states in a return took together.
func secondsOf(m *value.Map) float64 {
	millis := 0.0
	for _, v := range m.All() {
		s, _ := v.(*value.Map)
		if d, ok := number(s.Value("duration")); ok && d > 0 {
			millis += d
		}
	}
	return millis / 1000
}

func number(v any) (float64, bool) {
	switch v := v.(type) {
	case int64:
		return float64(v), true
	case float64:
		return v, true
	}
	return 0, false
}

func stateOf(tag string, ret *value.Map) state {
	parts := strings.SplitN(tag, "_|-", 4)
	i := strings.LastIndex(parts[3], "_|-") // the name of the state may contain the separator
	fun := parts[3]
	if i >= 0 {
		parts[2] += "_|-" + fun[:i]
		fun = fun[i+3:]
	}

	s := state{Function: briefName(parts[0] + "." + fun), ID: briefName(parts[1]), Name: briefName(parts[2]), ret: ret}
	s.run, _ = number(ret.Value("__run_num__"))
	changed := value.Truth(ret.Value("changes"))
	switch result := ret.Value("result"); {
	case result == false:
		s.Word = "failed"
		s.Class = "failed"
		s.rank = 0
		s.Open = true
	case result == nil:
		s.Word = "would change"
		s.Class = "differs"
		s.rank = 1
		s.Open = true
	case changed:
		s.Word = "changed"
		s.Class = "changed"
		s.rank = 2
		s.Open = true
	default:
		s.Word = "ok"
		s.Class = "ok"
		s.rank = 3
	}

	if d, ok := number(ret.Value("duration")); ok {
		s.Duration = durationWord(d / 1000)
	}

	return s
}

// fillTexts fills in the long texts of a state within the budget.
func (s *state) fillTexts(b *budget) {
	s.Comment = b.boundedText(value.StrMax(s.ret.Value("comment"), maxText+1))
	if w := s.ret.Value("warnings"); value.Truth(w) {
		s.Warnings = b.boundedText(plainText(w))
	}

	changes := s.ret.Value("changes")
	if !value.Truth(changes) {
		return
	}

	m, ok := changes.(*value.Map)
	if d, isText := m.Value("diff").(string); ok && isText {
		t := b.boundedText(d)
		s.Diff, s.DiffCut = diffLines(t.Text), t.Cut
		if m.Len() == 1 {
			return
		}

		m = m.Clone()
		m.Delete("diff")
		changes = m
	}

	s.Changes = b.boundedText(plainText(changes))
}

// diffLines returns the lines of a diff with their classes. It keeps the + and - of the text, so
// that the colour is not the only sign. The names of the files and the places are no changes.
func diffLines(text string) (out []diffLine) {
	for l := range strings.SplitSeq(strings.TrimSuffix(text, "\n"), "\n") {
		class := ""
		files := len(out) == 0 && strings.HasPrefix(l, "--- ") || len(out) == 1 && strings.HasPrefix(l, "+++ ")
		switch {
		case files || strings.HasPrefix(l, "@@ "):
			class = "head"
		case strings.HasPrefix(l, "+"):
			class = "added"
		case strings.HasPrefix(l, "-"):
			class = "removed"
		}
		out = append(out, diffLine{class, printable.Text(l)})
	}
	return out
}
