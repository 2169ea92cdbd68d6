package console

import (
	"cmp"
	"net/url"
	"slices"
	"strings"

	"saltern/master/value"
)

// fieldBytes bounds each field in the URL of a form, in bytes.
const fieldBytes = 2048

// runAgainURL returns the URL of the form to run the job again, filled in with this job, or "" when the
// form cannot hold it.
func (c *Console) runAgainURL(m *value.Map) string {
	if batch := m.Map("Batch"); batch != nil && batch.Value("tgt") == nil {
		return "" // the target of the job is that of the last part of the batch
	}
	return c.runURL(m, targetText(m.Value("Target"), fieldBytes), cmp.Or(m.Str("Target-type"), "glob"))
}

// runRestURL returns the URL of the form to run the job on the minions that do not have it, of a batch
// that does not go on or whose master is away. Otherwise, and when the form cannot hold that, it returns "".
func (c *Console) runRestURL(m *value.Map, p *batchProgress) string {
	asked, ok := m.Map("Batch").Value("tgt").(string)
	stopped := p.Halted != "" && p.Pending > 0
	if !ok && m.Map("Batch").Value("tgt") != nil && m.Map("Batch").Str("tgt_type") == "list" {
		asked, ok = targetText(m.Map("Batch").Value("tgt"), fieldBytes), true
	}
	if !ok || !stopped && !(p.Away && p.GoesOn()) {
		return ""
	}

	have := m.Texts("Minions")
	kind := m.Map("Batch").Str("tgt_type")
	if kind == "list" {
		rest := slices.DeleteFunc(strings.Split(asked, ","), func(id string) bool { return slices.Contains(have, id) })
		return c.runURL(m, strings.Join(rest, ","), kind)
	}

	letter, known := map[string]string{"glob": "", "pcre": "E@", "grain": "G@", "grain_pcre": "P@", "pillar": "I@",
		"nodegroup": "N@", "ipcidr": "S@"}[kind]
	word := letter + asked
	switch {
	case kind == "compound":
		word = "( " + asked + " )"
	case !known || strings.ContainsAny(asked, " ()"), kind == "glob" && strings.Contains(asked, "@"):
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
