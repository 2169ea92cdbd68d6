package output

import (
	"cmp"
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"saltern/master/value"
)

// highstate returns the results of state runs as text (salt/output/highstate.py).
func highstate(v any, o *Options) string {
	v = unwrapHighstate(v)
	switch d := v.(type) {
	case nil:
		return "None"
	case string:
		return o.stripEscapes(d)
	case bool, int, int64, uint64:
		return value.Repr(d) // Salt fails at this point, when it strips the result
	}

	data, ok := v.(*value.Map)
	if !ok {
		panic(failure("not a map"))
	}

	data = dropRetcode(data)
	if o.StateCompress {
		data = compressStates(data)
	}

	if data.Len() == 0 {
		return ""
	}

	h := highstater{Options: o, palette: o.colors(), level: max(o.stateIndent, 1)}
	var hosts []string
	for host, states := range data.All() {
		text, _ := h.formatHost(value.Str(host), states)
		hosts = append(hosts, text)
	}

	return strings.Join(hosts, "\n")
}

// unwrapHighstate returns the data inside the envelopes of jobs.lookup_jid and of the orchestrate
// runner.
func unwrapHighstate(v any) any {
	for _, envelope := range []string{"return", "data"} {
		if m, ok := v.(*value.Map); ok {
			if inner, ok := m.Get(envelope); ok {
				v = inner
			}
		}
	}

	m, ok := v.(*value.Map)
	if !ok || m.Len() != 1 {
		return v
	}

	for _, e := range m.All() {
		job, ok := e.(*value.Map)
		if !ok {
			return v
		}

		_, jid := job.Get("jid")
		_, fun := job.Get("fun")
		if jid && fun {
			if d, ok := job.Map("return").Get("data"); ok {
				return d
			}
		}
	}

	return v
}

// dropRetcode removes the return code that the orchestrate runner puts beside the master's result.
func dropRetcode(m *value.Map) *value.Map {
	masters := 0
	for k := range m.All() {
		s, ok := k.(string)
		if !ok {
			panic(failure("host is not text"))
		}
		if strings.HasSuffix(s, "_master") {
			masters++
		}
	}

	if _, ok := m.Get("retcode"); !ok || masters != 1 {
		return m
	}

	m = m.Clone()
	m.Delete("retcode")
	return m
}

type highstater struct {
	*Options
	palette
	level int
}

// tally counts the states of one host for its summary.
type tally struct {
	succeeded, failed, unchanged, warnings, other int
	changed                                       int
	serial, parallel                              float64
}

// formatHost returns the text for the states of one host, and reports whether any state changed
// anything.
func (h *highstater) formatHost(name string, v any) (string, bool) {
	var out []string
	t := tally{}
	color := h.green
	switch v := v.(type) {
	case bool, int, int64, uint64:
		t.changed = 1
		out = append(out, color+"    "+value.Repr(v)+h.end)
		color = h.cyan
	case string: // a result of saltmod.function, which is always a change
		t.changed = 1
		for _, l := range splitLines(v) {
			out = append(out, color+"    "+h.stripEscapes(l)+h.end)
		}
		color = h.cyan
	case []any: // the errors of a state run
		color = h.lightRed
		out = append(out, "    "+color+"Data failed to compile:"+h.end)
		for _, e := range v {
			out = append(out,
				color+"----------\n    "+h.stripEscapes(strings.ReplaceAll(value.Str(e), "\n", "\n    "))+h.end)
		}
	case *value.Map:
		out, color = h.states(name, v, &t)
	}

	return color + h.stripLine(name) + ":" + h.end + strings.Join(append([]string{""}, out...), "\n"), t.changed > 0
}

func (h *highstater) states(host string, m *value.Map, t *tally) ([]string, string) {
	var out []string
	color := h.green
	type entry struct {
		tag string
		ret *value.Map
	}

	var entries []entry
	for k, v := range m.All() {
		info, ok := v.(*value.Map)
		if !ok {
			continue
		}

		if _, numbered := info.Get("__run_num__"); !numbered && info.Len() > 0 && k != "changes" {
			out = append([]string{
				"The State execution failed to record the order in which all states were executed. The state return missing data is:",
				h.stripEscapes(pformat(info, 1)),
			}, out...)
		}

		if _, ok := info.Get("result"); ok {
			entries = append(entries, entry{value.Str(k), info})
		}
	}

	slices.SortStableFunc(entries,
		func(a, b entry) int { return number64(runNumber(a.ret)).Cmp(number64(runNumber(b.ret))) })
	for _, e := range entries {
		lines, c := h.formatState(e.tag, e.ret, t)
		out = append(out, lines...)
		if c != "" {
			color = c
		}
	}

	return append(out, h.summary(host, t)...), color
}

func runNumber(m *value.Map) any {
	v, ok := m.Get("__run_num__")
	if !ok {
		return int64(0)
	}
	switch v.(type) {
	case bool, int64, uint64, float64:
		return v
	}
	panic(failure("states cannot be sorted"))
}

var compressedCount = regexp.MustCompile(`\((\d+)\)$`)

// formatState returns the lines of one state, and the colour for the line with the host's name. If
// the colour is "", the line keeps its present colour.
func (h *highstater) formatState(tag string, ret *value.Map, t *tally) ([]string, string) {
	result, _ := ret.Get("result")
	comps := strings.Split(tag, "_|-")
	count := 1
	if h.StateCompress && strings.Contains(tag, "_|-state_compressed_") && len(comps) == 4 {
		if m := compressedCount.FindStringSubmatch(comps[1]); m != nil {
			count, _ = strconv.Atoi(m[1])
		}
	}

	t.addResult(result, count)
	t.addDuration(ret)

	changes, ok := ret.Get("changes")
	if !ok {
		panic(failure("state without changes"))
	}

	changed, text := h.changes(ret, changes, count, t)
	if h.StateDiff && value.Truth(result) && !changed {
		return nil, ""
	}
	if !h.StateVerbose && value.Truth(result) && !changed {
		return nil, ""
	}

	color, hostColor := h.green, ""
	if changed {
		color = h.cyan
	}

	switch result {
	case false:
		color, hostColor = h.red, h.red
	case nil:
		color, hostColor = h.lightYellow, h.lightYellow
	}

	if len(comps) < 4 {
		panic(failure("unknown form of state tag"))
	}

	so := strings.ToLower(h.StateOutput)
	so = cmp.Or(so, "full")
	if strings.HasSuffix(so, "_id") {
		comps[2] = comps[1]
	}

	switch {
	case strings.HasPrefix(so, "filter"):
		if slices.Contains(h.StateTerse, value.Str(result)) {
			return []string{h.formatTerse(color, comps, ret, changes, result)}, hostColor
		}
		if slices.Contains(h.StateExclude, value.Str(result)) {
			return nil, hostColor
		}
	case strings.HasPrefix(so, "terse"),
		strings.HasPrefix(so, "mixed") && result != false,
		strings.HasPrefix(so, "changes") && value.Truth(result) && !changed:
		return []string{h.formatTerse(color, comps, ret, changes, result)}, hostColor
	}

	return h.formatFull(color, comps, ret, result, text, t), hostColor
}

func (h *highstater) formatFull(
	color string,
	comps []string,
	ret *value.Map,
	result any,
	changes string,
	t *tally,
) []string {
	row := func(label, text string) string { return "    " + color + label + h.stripEscapes(text) + h.end }
	out := []string{color + "----------" + h.end, row("      ID: ", indented(comps[1]))}
	function := row("Function: ", indented(comps[0]+"."+comps[3]))

	// Salt shows the name after the function.
	out = append(out, function)
	if comps[1] != comps[2] {
		out = append(out, row("    Name: ", indented(comps[2])))
	}

	out = append(out, row("  Result: ", value.Str(result)), row(" Comment: ", h.comment(ret)))
	if start, ok := ret.Get("start_time"); ok && h.StateProfile {
		duration := ""
		if d, ok := ret.Get("duration"); ok && d != "" {
			duration = value.Str(d) + " ms"
		}
		out = append(out, row(" Started: ", indented(value.Str(start))), row("Duration: ", indented(duration)))
	}

	out = append(out, color+"     Changes:   "+changes+h.end)
	if w, ok := ret.Get("warnings"); ok {
		t.warnings++
		text := wrapIndented(strings.Join(warningParts(w), "\n"), 80, strings.Repeat(" ", 14))
		out = append(out, "   "+h.lightRed+" Warnings: "+h.stripEscapes(strings.TrimLeftFunc(text, isSpace))+h.end)
	}

	return out
}

// indented indents all lines of a text except the first. A line that begins at the margin could
// look like the result of another minion.
func indented(s string) string { return strings.ReplaceAll(s, "\n", "\n"+strings.Repeat(" ", 14)) }

// comment returns the comment of a state and its data, indented.
func (h *highstater) comment(ret *value.Map) string {
	v, ok := ret.Get("comment")
	if !ok {
		panic(failure("state without comment"))
	}

	c := indented(trimSpace(value.Str(v)))
	data, ok := ret.Get("data")
	if !ok {
		return c
	}

	switch data := data.(type) {
	case []any:
		for _, e := range data {
			c += " " + indented(value.Str(e))
		}
	case *value.Map:
		for k, e := range data.All() {
			c += "\n\t\t" + indented(value.Str(k)) + ": " + indented(value.Str(e))
		}
	default:
		c += " " + indented(value.Str(data))
	}

	return c
}

// formatTerse returns the text of a state on one line.
func (h *highstater) formatTerse(color string, comps []string, ret *value.Map, changes, result any) string {
	word := "Clean"
	if value.Truth(changes) {
		word = "Changed"
	}

	switch result {
	case false:
		word = "Failed"
	case nil:
		word = "Differs"
	}

	var b strings.Builder
	if w, ok := ret.Get("warnings"); ok {
		b.WriteString(h.lightRed + "Warnings:\n" +
			h.stripEscapes(indented(strings.Join(warningParts(w), "\n"))) + h.end)
		if h.StateTabular {
			b.WriteByte('\n')
		}
	}

	start, profile := ret.Get("start_time")
	profile = profile && h.StateProfile
	duration, ok := ret.Get("duration")
	if profile && !ok {
		panic(failure("state without duration"))
	}

	name := h.stripEscapes(indented(comps[2]))
	module := h.stripEscapes(indented(comps[0]))
	function := h.stripEscapes(indented(comps[len(comps)-1]))
	if h.StateTabular {
		b.WriteString(color)
		if profile {
			fmt.Fprintf(&b, "%s [%7s ms] ", h.stripEscapes(indented(value.Str(start))),
				h.stripEscapes(indented(value.Str(duration))))
		}
		fmt.Fprintf(&b, "%10s.%-10s %-7s   Name: %s%s", module, function, word, name, h.end)
		return b.String()
	}

	fmt.Fprintf(&b, " %s Name: %s - Function: %s.%s - Result: %s", color, name, module, function, word)
	if profile {
		fmt.Fprintf(&b, " - Started: %s - Duration: %s ms", h.stripEscapes(indented(value.Str(start))),
			h.stripEscapes(indented(value.Str(duration))))
	}

	b.WriteString(h.end)
	return b.String()
}

// warningParts returns the parts of a warning that are joined as by Python's str.join.
func warningParts(v any) []string {
	switch v := v.(type) {
	case string:
		return strings.Split(v, "")
	case []any:
		out := make([]string, 0, len(v))
		for _, e := range v {
			s, ok := e.(string)
			if !ok {
				panic(failure("warning is not text"))
			}
			out = append(out, s)
		}

		return out
	}

	panic(failure("warnings are not a list"))
}
