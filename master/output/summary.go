package output

import (
	"fmt"
	"math"
	"strconv"
	"strings"

	"saltern/master/value"
)

func (t *tally) addResult(result any, n int) {
	switch result {
	case true, int64(1), float64(1):
		t.succeeded += n
	case false, int64(0), float64(0):
		t.failed += n
	case nil:
		t.unchanged += n
	default:
		t.other += n
	}
}

func (t *tally) totalStates() int { return t.succeeded + t.failed + t.unchanged + t.other }

// addDuration adds the duration of a state, in milliseconds. Of the states that ran in parallel, it
// adds only the longest duration.
func (t *tally) addDuration(ret *value.Map) {
	d, ok := duration(ret)
	if !ok {
		return
	}
	if _, parallel := ret.Get("__parallel__"); parallel {
		t.parallel = math.Max(t.parallel, d)
		return
	}
	t.serial += d
}

func duration(ret *value.Map) (float64, bool) {
	v, ok := ret.Get("duration")
	if !ok {
		return 0, true
	}

	switch v := v.(type) {
	case bool:
		if v {
			return 1, true
		}
		return 0, true
	case int64:
		return float64(v), true
	case uint64:
		return float64(v), true
	case float64:
		return v, true
	case string:
		text, _, _ := strings.Cut(v, " ms")
		f, err := strconv.ParseFloat(trimSpace(text), 64)
		return f, err == nil
	}

	panic(failure("duration is not a number"))
}

// changes reports whether a state changed anything, and returns the changes as text.
func (h *highstater) changes(ret *value.Map, changes any, count int, t *tally) (bool, string) {
	switch ret.Str("name") {
	case "state.orch", "state.orchestrate", "state.sls":
		o := *h.Options
		o.stateIndent = h.level + 1
		inner := highstate(changes, &o)
		pad := strings.Repeat(" ", 14*h.level)
		t.changed++
		return true, pad + strings.ReplaceAll("\n"+inner, "\n", "\n"+pad)
	}

	changed, text := h.formatChanges(changes)
	if !changed {
		return false, text
	}

	n := 1
	if count > 1 {
		if m, ok := changes.(*value.Map); ok {
			n = max(m.Map("compressed changes").Len(), 1)
		}
	}

	t.changed += n
	return true, text
}

func (h *highstater) formatChanges(changes any) (bool, string) {
	if !value.Truth(changes) {
		return false, ""
	}

	m, ok := changes.(*value.Map)
	if !ok {
		return true, "Invalid Changes data: " + h.stripEscapes(value.Str(changes))
	}

	if ret, _ := m.Get("ret"); ret != nil && m.Str("out") == "highstate" {
		hosts, ok := ret.(*value.Map)
		if !ok {
			panic(failure("inner highstate is not a map"))
		}

		inner := *h
		inner.level = 1
		text, changed := "", false
		for host, states := range hosts.All() {
			s, c := inner.formatHost(value.Str(host), states)
			lines := splitLines(s)
			for i := range lines {
				lines[i] = strings.Repeat(" ", 14) + lines[i]
			}
			text += "\n" + strings.Join(lines, "\n")
			changed = changed || c
		}

		return changed, text
	}

	o := *h.Options
	o.NestedIndent, o.Retcode = 14, 0
	return true, "\n" + trimRight(nested(m, &o))
}

// summary returns the lines of the summary that follows the states of a host.
func (h *highstater) summary(host string, t *tally) []string {
	digits := 0
	counted := map[int]bool{t.succeeded: true, t.failed: true, t.unchanged: true, t.other: true, t.warnings: true}
	for n := range counted {
		if n > 0 {
			digits = max(digits, len(strconv.Itoa(n)))
		}
	}

	width := len("Succeeded") + digits + len(": ")
	row := func(label, count string) string {
		return fmt.Sprintf("%s: %*s", label, width-len(label)-2, count)
	}
	out := []string{h.cyan + "\nSummary for " + h.stripLine(host) + "\n" + strings.Repeat("-", width) + h.end}

	var stats []string
	if t.unchanged > 0 {
		stats = append(stats, h.lightYellow+"unchanged="+strconv.Itoa(t.unchanged)+h.end)
	}

	if t.changed > 0 {
		stats = append(stats, h.green+"changed="+strconv.Itoa(t.changed)+h.end)
	}

	line := h.green + row("Succeeded", strconv.Itoa(t.succeeded+t.unchanged)) + h.end
	if len(stats) > 0 {
		line += " (" + strings.Join(stats, ", ") + ")"
	}

	bad := h.cyan
	if t.failed > 0 {
		bad = h.red
	}

	out = append(out, line, bad+row("Failed", strconv.Itoa(t.failed))+h.end)
	if h.StatePercent && t.totalStates() > 0 {
		pct := func(n int) string {
			return value.FloatRepr(math.RoundToEven(float64(n)/float64(t.totalStates())*1e4) / 1e2)
		}
		out = append(out, h.green+row("Success %", pct(t.succeeded+t.unchanged))+h.end,
			bad+row("Failure %", pct(t.failed))+h.end)
	}

	if t.warnings > 0 {
		out = append(out, h.lightRed+row("Warnings", strconv.Itoa(t.warnings))+h.end)
	}

	out = append(out,
		fmt.Sprintf("%s%s\nTotal states run: %*d%s", h.cyan, strings.Repeat("-", width), width-7,
			t.totalStates(), h.end))
	if h.StateProfile {
		sum, unit := t.serial+t.parallel, "ms"
		if sum > 999 {
			sum, unit = sum/1000, "s"
		}
		out = append(out, fmt.Sprintf("%sTotal run time: %*.3f %s%s", h.cyan, width-5, sum, unit, h.end))
	}

	return out
}
