package saved

import (
	"slices"
	"strings"
	"unicode"

	"saltern/master/runner"
	"saltern/master/target"
	"saltern/master/value"
)

// Target is a saved target.
type Target struct {
	Expression  string
	Type        string // as tgt_type: glob, list, pcre, grain, compound …
	Description string
}

// engines maps the types of saved targets to what stands before such an expression in a compound
// target (salt/utils/minions.py TARGET_REX).
var engines = map[string]string{
	"glob":        "",
	"compound":    "",
	"list":        "L@",
	"pcre":        "E@",
	"grain":       "G@",
	"grain_pcre":  "P@",
	"pillar":      "I@",
	"pillar_pcre": "J@",
	"ipcidr":      "S@",
	"nodegroup":   "N@",
}

func readTarget(settings *value.Map) (*Target, error) {
	f := newForm(settings)
	t := &Target{
		Expression:  f.text("expression", maxExpression),
		Type:        f.text("type", 20),
		Description: f.description(),
	}
	if err := f.end(); err != nil {
		return nil, err
	}
	if t.Type == "" {
		t.Type = "glob"
	}
	return t, checkTarget(t.Expression, t.Type)
}

// checkTarget checks the form of a target, without its nodegroups.
func checkTarget(expression, kind string) error {
	_, known := engines[kind]
	switch {
	case !known:
		return badf("%.40q is no type of targets: there are compound, glob, grain, grain_pcre, ipcidr, list, nodegroup, pcre, pillar and pillar_pcre",
			kind)
	case strings.TrimSpace(expression) == "":
		return badf("expression is missing: the target, such as 'web*' or G@os:Debian")
	case strings.ContainsFunc(expression, unicode.IsControl):
		return badf("expression has a character that is not printed, such as the end of a line")
	case kind != "compound" && strings.ContainsFunc(expression, unicode.IsSpace):
		return badf("expression has a blank, which a word of a compound target cannot have: write '?', or '\\s' in a regular expression")
	case kind == "glob" && (strings.Contains(expression, "@") || slices.Contains([]string{"and", "or", "not", "(", ")"}, expression)):
		return badf("%.80q is no pattern of minion ids: say the type, such as compound", expression)
	}
	return nil
}

// words returns the target as a nodegroup: the words of a compound target. Parentheses keep the
// target one term, and keep a glob from being read as a regular expression.
func (t *Target) words() []any { return value.List(spell(t.Expression, t.Type)) }

func spell(expression, kind string) []string {
	words := []string{engines[kind] + expression}
	if kind == "compound" {
		words = strings.Fields(expression)
	}
	return slices.Concat([]string{"("}, words, []string{")"})
}

// compile checks that a target can be resolved with the given nodegroups, alone and as a part of
// another target: "a ) or ( b" is one only within parentheses.
func compile(expression, kind string, groups *value.Map) error {
	spelled := spell(expression, kind)
	alone := strings.Join(spelled[1:len(spelled)-1], " ")
	for _, text := range []string{alone, strings.Join(spelled, " ")} {
		if _, err := target.Compile(text, "compound", target.Env{Nodegroups: groups}); err != nil {
			return badf("the target %.100q cannot be read: %v", expression, err)
		}
	}
	return nil
}

// checkPatterns refuses a change by which somebody without all rights could read pillars: he would see
// which minions a pattern for values of pillars selects, and narrow it down. Nobody may use his own
// pattern in a job either (launch.MayTarget), but everybody may use nodegroups with one. option is the
// option nodegroups.
func (d *draft) checkPatterns(by runner.Caller, option *value.Map) error {
	if by.All || by.Full {
		return nil
	}
	d.makeGroups(option)
	for _, o := range d.changed {
		if o.Target == nil {
			continue
		}
		words := strings.Join(spell(o.Target.Expression, o.Target.Type), " ")
		if term, found := target.PillarPattern(words, "compound", ":", d.groups); found {
			return badf("target %s: %.100q is a pattern for values of pillars, which only who has all rights may save: write the value in full",
				o.Name, term)
		}
	}
	return nil
}
