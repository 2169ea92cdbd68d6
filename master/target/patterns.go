package target

import (
	"slices"
	"strings"

	"saltern/master/value"
)

// PillarPattern returns the first term of a target that applies a pattern to pillar values, such as
// I@role:web* or any J@ term, also in nodegroups. With such a term the author of the target could
// guess a pillar value letter by letter from the selected minions. found is false when there is no
// such term: a target without one only compares pillar values with values that its author wrote.
// The result does not depend on any pillar, so a refusal reveals nothing. delimiter is the
// request's delimiter. A target that cannot be parsed has no terms; [Compile] refuses it.
func PillarPattern(tgt any, typ, delimiter string, groups *value.Map) (term string, found bool) {
	for _, t := range pillarTerms(tgt, typ, delimiter, groups) {
		if t.isPattern() {
			return t.text, true
		}
	}
	return "", false
}

// OwnPillarPattern works like PillarPattern, but ignores the terms that the administrator wrote
// into nodegroups. Clients replace nodegroups by their words (salt/client/__init__.py _prep_pub),
// so OwnPillarPattern recognises the administrator's terms by their text.
func OwnPillarPattern(tgt any, typ, delimiter string, groups *value.Map) (term string, found bool) {
	for _, t := range pillarTerms(tgt, typ, delimiter, groups) {
		if t.isPattern() && !t.written(groups) {
			return t.text, true
		}
	}
	return "", false
}

// pillarTerm is a term of a target: the text that it has in a compound target, its type and its
// expression.
type pillarTerm struct {
	text, typ, expr string
	delimited       bool // the term has another delimiter than terms of compound targets
}

// pillarTerms returns all terms of a target, including those of its nodegroups.
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

// isPattern reports whether the term applies a pattern to pillar values.
func (t pillarTerm) isPattern() bool {
	switch t.typ {
	case "pillar", "pillar_exact":
		return strings.ContainsAny(t.expr, "*?[")
	case "pillar_pcre":
		return true
	}
	return false
}

// written reports whether one of the administrator's nodegroups contains the term.
func (t pillarTerm) written(groups *value.Map) bool {
	for name, group := range groups.All() {
		words, err := definition(value.Str(name), group)
		if err == nil && slices.Contains(words, t.text) {
			return !t.delimited
		}
	}
	return false
}
