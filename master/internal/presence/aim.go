package presence

import (
	"slices"
	"strings"

	"saltern/master/value"
)

// maxNamedIDs bounds the minions that a job names when it is sent again: those it is for, or
// those it is not for.
const maxNamedIDs = 500

// narrowedTarget is whom a job is for when it is sent again.
type narrowedTarget struct {
	tgt       any
	typ       string
	ids       []string // that it was resolved to
	unchanged bool     // as it was
	// nobody is left, or it cannot be said who is: see doubt.
	nobody, unknown bool
}

// narrowTarget leaves out of a target whoever has returned the job, and who has been started anew since
// it was published: that minion does not know any more what it has done, and a subscription
// does not say whose it is. The first are left out as far as there is room for their names,
// the others always; when that is not possible, it is in doubt.
//
// A list of the others says it where ids are the target. Of another target the minion itself
// knows best whether it is meant, so that the target stays and names are taken from it, as
// Salt's compound targets can (salt/matchers/compound_match.py).
func narrowTarget(load *value.Map, matched []string, returned, started map[string]bool) narrowedTarget {
	typ := load.Str("tgt_type")
	if typ == "" {
		typ = "glob"
	}

	as := narrowedTarget{tgt: load.Value("tgt"), typ: typ, ids: matched, unchanged: true}
	var left []string
	for _, id := range matched {
		if !returned[id] && !started[id] {
			left = append(left, id)
		}
	}

	if byID(typ) && len(matched) > 0 {
		switch {
		case len(left) == 0:
			as.nobody = true
			return as
		case len(left) == len(matched) && len(started) == 0:
			return as
		case len(left) <= maxNamedIDs:
			return narrowedTarget{tgt: left, typ: "list", ids: left}
		}
	}

	out := sortedIDs(returned, started)
	if len(out) == 0 {
		return as
	}

	words := targetWords(load, typ)
	if words == nil || len(out) > maxNamedIDs {
		out = sortedIDs(started)
		as.unknown = words == nil && len(out) > 0 || len(out) > maxNamedIDs
		if as.unknown || len(out) == 0 {
			return as
		}
	}

	return narrowedTarget{tgt: append(words, "and", "not", "L@"+strings.Join(out, ",")), typ: "compound", ids: left}
}

// byID reports whether targets of a type select minions by their ids alone.
func byID(typ string) bool { return typ == "glob" || typ == "list" || typ == "pcre" }

// sortedIDs are the ids of all sets, sorted.
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

// engines are the letters by which a compound target names other types
// (salt/utils/minions.py TARGET_REX).
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

// targetWords are a target's words in a compound target; nil: it cannot be said so.
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
		if list := load.Texts("tgt"); len(words) == 0 {
			words = list
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
