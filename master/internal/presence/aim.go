package presence

import (
	"slices"
	"strings"

	"saltern/master/value"
)

// maxNamedIDs bounds the minion ids in the target of a repeated job.
const maxNamedIDs = 500

// narrowedTarget is the target with which a job is sent again.
type narrowedTarget struct {
	tgt       any
	typ       string
	ids       []string // minions to which the target resolves
	unchanged bool     // the target is the job's original target
	// nobody means that no minion is left in the target. unknown means that narrowTarget cannot
	// determine which minions are left.
	nobody, unknown bool
}

// narrowTarget excludes two kinds of minions from the target of a job: those that have returned, as
// far as maxNamedIDs allows, and those that were restarted after the publication. The latter must
// be excluded, because a restarted minion has no record of the jobs that it has run, and a
// subscription does not show to which minion it belongs. If restarted minions cannot be excluded,
// the result is unknown.
//
// A target of ids becomes a list of the remaining ids. For any other target only the minion itself
// can decide whether it matches, so narrowTarget keeps that target and excludes the ids in it, as
// Salt's compound targets allow (salt/matchers/compound_match.py).
func narrowTarget(load *value.Map, matched []string, returned, started map[string]bool) narrowedTarget {
	typ := load.Str("tgt_type")
	if typ == "" {
		typ = "glob"
	}

	narrowed := narrowedTarget{tgt: load.Value("tgt"), typ: typ, ids: matched, unchanged: true}
	var left []string
	for _, id := range matched {
		if !returned[id] && !started[id] {
			left = append(left, id)
		}
	}

	if byID(typ) && len(matched) > 0 {
		switch {
		case len(left) == 0:
			narrowed.nobody = true
			return narrowed
		case len(left) == len(matched) && len(started) == 0:
			return narrowed
		case len(left) <= maxNamedIDs:
			return narrowedTarget{tgt: left, typ: "list", ids: left}
		}
	}

	out := sortedIDs(returned, started)
	if len(out) == 0 {
		return narrowed
	}

	words := targetWords(load, typ)
	if words == nil || len(out) > maxNamedIDs {
		out = sortedIDs(started)
		narrowed.unknown = words == nil && len(out) > 0 || len(out) > maxNamedIDs
		if narrowed.unknown || len(out) == 0 {
			return narrowed
		}
	}

	return narrowedTarget{tgt: append(words, "and", "not", "L@"+strings.Join(out, ",")), typ: "compound", ids: left}
}

// byID reports whether a target of this type selects minions by their ids alone.
func byID(typ string) bool { return typ == "glob" || typ == "list" || typ == "pcre" }

// sortedIDs returns the ids of all sets, sorted.
func sortedIDs(sets ...map[string]bool) []string {
	var out []string
	for _, set := range sets {
		for id, in := range set {
			if in {
				out = append(out, id)
			}
		}
	}
	slices.Sort(out)
	return slices.Compact(out)
}

// compoundLetters maps target types to their letters in a compound target (salt/utils/minions.py
// TARGET_REX).
var compoundLetters = map[string]string{
	"pcre":        "E",
	"list":        "L",
	"grain":       "G",
	"grain_pcre":  "P",
	"pillar":      "I",
	"pillar_pcre": "J",
	"ipcidr":      "S",
	"range":       "R",
}

// targetWords returns a target as the list of terms of a compound target, or nil if the target
// cannot be expressed as one.
func targetWords(load *value.Map, typ string) []string {
	text := load.Str("tgt")
	if typ == "list" {
		if list := load.Texts("tgt"); len(list) > 0 {
			text = strings.Join(list, ",")
		}
	}

	switch {
	case typ == "compound":
		words := strings.Fields(text)
		if len(words) == 0 {
			words = load.Texts("tgt")
		}

		if len(words) == 0 {
			return nil
		}

		return append(append([]string{"("}, words...), ")")
	case text == "" || strings.ContainsAny(text, "\n\r"):
		return nil
	case typ == "glob":
		if strings.Contains(text, "@") || slices.Contains([]string{"and", "or", "not", "(", ")"}, text) {
			return nil
		}
		return []string{text}
	}

	engine := compoundLetters[typ]
	if engine == "" {
		return nil
	}

	if d := load.Str("delimiter"); d != "" && d != ":" && strings.Contains("GPIJ", engine) {
		if len(d) != 1 {
			return nil
		}
		engine += d
	}

	return []string{engine + "@" + text}
}
