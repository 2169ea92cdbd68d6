package console

import (
	"cmp"
	"net/url"
	"slices"
	"strings"
	"unicode"

	"saltern/master/value"
)

// fieldBytes bounds each field in the URL of a form, in bytes.
const fieldBytes = 2048

// runAgainURL returns the URL of the form to run the job again, filled in with this job, or "" when the
// form cannot hold it.
func (c *Console) runAgainURL(m *value.Map) string {
	if batch := m.Map("Batch"); batch != nil && batch.Value("tgt") == nil {
		return "" // the job has the target of the last part of the batch
	}
	target := m.Value("Target")
	if ids, ok := target.([]any); ok && !plainIDs(ids) {
		return ""
	}
	kind := cmp.Or(m.Str("Target-type"), "glob")
	if otherDelimiter(m) && kind != "list" {
		return ""
	}
	return c.runURL(m, targetText(target, fieldBytes), kind)
}

// otherDelimiter reports whether the parts of a job's target are separated by something else than a colon.
// The form has no field for that: with a colon the target selects other minions.
func otherDelimiter(m *value.Map) bool { return m.Str("Delimiter") != "" }

// runFailedURL returns the URL of the form to run the job again on these minions, or "" when the form
// cannot hold it.
func (c *Console) runFailedURL(m *value.Map, ids []any) string {
	if !plainIDs(ids) {
		return ""
	}
	return c.runURL(m, targetText(ids, fieldBytes), "list")
}

// plainIDs reports whether each of these ids is one minion where ids stand in a target. Others, such as
// "x or E@.+", may select more minions.
func plainIDs(ids []any) bool {
	return !slices.ContainsFunc(ids, func(id any) bool { return !isPlain(value.Str(id)) })
}

// isPlain reports whether a word of a target cannot be read as several.
func isPlain(word string) bool {
	isSeparator := func(r rune) bool { return unicode.IsSpace(r) || strings.ContainsRune(",()", r) }
	return !strings.ContainsFunc(word, isSeparator) && !slices.Contains([]string{"", "and", "or", "not"}, word)
}

// runRestURL returns the URL of the form to run the job on the minions that do not have it, of a batch
// that does not go on or whose master is away. Otherwise, and when the form cannot hold that, it returns "".
func (c *Console) runRestURL(m *value.Map, p *batchProgress) string {
	batch := m.Map("Batch")
	kind := batch.Str("tgt_type")
	if !p.StoppedEarly() && !(p.Away && p.GoesOn()) && !p.LeftOut() || !plainIDs(m.List("Minions")) {
		return ""
	}

	have := m.Texts("Minions")
	asked, isText := batch.Value("tgt").(string)
	if kind == "list" {
		ids := batch.List("tgt")
		if isText {
			ids = value.List(strings.Split(asked, ","))
		}
		rest := slices.DeleteFunc(ids, func(id any) bool { return slices.Contains(have, value.Str(id)) })
		if !plainIDs(rest) {
			return ""
		}
		return c.runURL(m, targetText(rest, fieldBytes), kind)
	}
	if !isText || otherDelimiter(m) {
		return ""
	}

	letter, known := map[string]string{"glob": "", "pcre": "E@", "grain": "G@", "grain_pcre": "P@", "pillar": "I@",
		"nodegroup": "N@", "ipcidr": "S@"}[kind]
	word := letter + asked
	switch {
	case kind == "compound":
		word = "( " + asked + " )"
	case !known || !isPlain(asked), kind == "glob" && strings.Contains(asked, "@"):
		return ""
	}
	if len(have) > 0 {
		word += " and not L@" + strings.Join(have, ",")
	}
	return c.runURL(m, word, "compound")
}

// runURL returns the URL of the form to run a job on a target, or "" when the form cannot hold it.
func (c *Console) runURL(m *value.Map, target, kind string) string {
	fun, ok := m.Value("Function").(string)
	args := m.List("Arguments")
	if !ok || target == "" || len(target) >= fieldBytes || len(value.StrMax(args, fieldBytes)) >= fieldBytes {
		return "" // the job has several functions, or a field is too long
	}
	text, ok := typedArgs(args)
	if !ok {
		return ""
	}

	q := url.Values{"tgt": {target}, "type": {kind}, "fun": {fun}, "arg": {text}}
	if batch := m.Map("Batch"); batch != nil {
		asked := batch.Map("asked")
		if asked == nil {
			return "" // a saved job with limits, which the form does not have
		}
		partsAsked(asked).fillQuery(q)
	}
	return c.base + "/run?" + q.Encode()
}
