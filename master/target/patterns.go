package target

import (
	"slices"
	"strings"

	"saltern/master/value"
)

// PillarPattern returns the first term of a target that applies a pattern to pillar values, such as
// I@role:web* or any J@ term, including terms of nodegroups. found is false when there is none:
// then the target contains only pillar values that its author wrote out. With such a term its
// author can guess a pillar value letter by letter from the selected minions. The result does not
// depend on any pillar, so that a refusal reveals nothing. delimiter is that of the request. A
// target that cannot be parsed has no terms; [Compile] refuses it.
func PillarPattern(tgt any, typ, delimiter string, groups *value.Map) (term string, found bool) {
	for _, t := range pillarTerms(tgt, typ, delimiter, groups) {
		if t.isPattern() {
			return t.text, true
		}
	}
	return "", false
}

// OwnPillarPattern is PillarPattern without the terms of nodegroups, which the administrator wrote.
// Clients replace nodegroups by their words (salt/client/__init__.py _prep_pub), so such terms may
// stand anywhere.
func OwnPillarPattern(tgt any, typ, delimiter string, groups *value.Map) (term string, found bool) {
	for _, t := range pillarTerms(tgt, typ, delimiter, groups) {
		if t.isPattern() && !t.written(groups) {
			return t.text, true
		}
	}
	return "", false
}

// pillarTerm is a term of a target: its text in a compound target, and its parsed form.
type pillarTerm struct {
	text, typ, expr string
	delimited       bool // with another delimiter than terms of compound targets
}

// pillarTerms returns the terms of a target with those of its nodegroups, pillar terms among them.
func pillarTerms(tgt any, typ, delimiter string, groups *value.Map) (terms []pillarTerm) {
	var words []string
	var err error
	switch typ {
	case "pillar", "pillar_exact", "pillar_pcre":
		expr, _ := targetText(tgt)
		engine := "I@"
		if typ == "pillar_pcre" {
			engine = "J@"
		}
		return []pillarTerm{{text: engine + expr, typ: typ, expr: expr, delimited: delimiter != "" && delimiter != ":"}}
	case "nodegroup":
		name, _ := targetText(tgt)
		words, err = nodegroup(name, groups)
	case "compound", "compound_pillar_exact":
		if words, err = compoundWords(tgt); err == nil {
			words, err = expand(words, Env{Nodegroups: groups})
		}
	}

	if err != nil {
		return nil
	}

	for _, w := range words {
		typ, _, expr := parseWord(w)
		terms = append(terms, pillarTerm{text: w, typ: typ, expr: expr})
	}

	return terms
}

// isPattern reports whether a term applies a pattern to pillars.
func (t pillarTerm) isPattern() bool {
	switch t.typ {
	case "pillar", "pillar_exact":
		return strings.ContainsAny(t.expr, "*?[")
	case "pillar_pcre":
		return true
	}
	return false
}

// written reports whether the administrator wrote a term into a nodegroup.
func (t pillarTerm) written(groups *value.Map) bool {
	for name, group := range groups.All() {
		words, err := definition(value.Str(name), group)
		if err == nil && slices.Contains(words, t.text) {
			return !t.delimited
		}
	}
	return false
}
