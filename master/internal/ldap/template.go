package ldap

import (
	"fmt"
	"regexp"
	"strings"

	ldapv3 "github.com/go-ldap/ldap/v3"
)

// template is a text with placeholders for the user's name: {{ username }}, optionally with |lower
// or |upper. (Salt allows all of Jinja in it.)
type template struct {
	parts []string // text between the names: parts[0] name parts[1] name …
	cases []string // case of each name: "", "lower" or "upper"
}

var (
	namePlace  = regexp.MustCompile(`\{\{-?\s*username\s*(?:\|\s*(lower|upper)\s*)?-?\}\}`)
	jinjaMark  = regexp.MustCompile(`\{\{|\{%|\{#`)
	afterGroup = regexp.MustCompile(`\)\s+`)
	afterMark  = regexp.MustCompile(`\(\s*([&|!])\s+`)
)

func parseTemplate(option, s string) (template, error) {
	var t template
	for {
		at := namePlace.FindStringSubmatchIndex(s)
		if at == nil {
			break
		}

		name := ""
		if at[2] >= 0 {
			name = s[at[2]:at[3]]
		}

		t.parts, t.cases = append(t.parts, s[:at[0]]), append(t.cases, name)
		s = s[at[1]:]
	}

	t.parts = append(t.parts, s)
	for _, p := range t.parts {
		if jinjaMark.MatchString(p) {
			return t, fmt.Errorf("%s: of Jinja only {{ username }}, {{ username|lower }} and {{ username|upper }} are possible here",
				option)
		}
	}

	return t, nil
}

// parseFilter parses the template of a filter. Like libldap it drops blanks between the parts of
// the filter.
func parseFilter(option, s string) (template, error) {
	s = strings.TrimSpace(s)
	s = afterMark.ReplaceAllString(afterGroup.ReplaceAllString(s, ")"), "($1")
	t, err := parseTemplate(option, s)
	if err != nil || s == "" {
		return t, err
	}
	if _, err := compileFilter(t.render("x", ldapv3.EscapeFilter)); err != nil {
		return t, fmt.Errorf("%s: %w", option, err)
	}
	return t, nil
}

// variable reports whether the template contains a placeholder.
func (t template) variable() bool { return len(t.cases) > 0 }

// render returns the text of the template, with each placeholder replaced by the result of escape
// for the name.
func (t template) render(name string, escape func(string) string) string {
	var b strings.Builder
	for i, p := range t.parts {
		if i > 0 {
			n := name
			switch t.cases[i-1] {
			case "lower":
				n = strings.ToLower(n)
			case "upper":
				n = strings.ToUpper(n)
			}

			b.WriteString(escape(n))
		}

		b.WriteString(p)
	}

	return b.String()
}

// renderName returns the name for a bind, with each placeholder replaced by the user's name. A
// distinguished name contains the user's name escaped as one value. A template in another form is
// for Active Directory (NAME@domain, DOMAIN\NAME), and is not escaped.
func (t template) renderName(name string) string {
	if strings.Contains(t.parts[0], "=") {
		return t.render(name, ldapv3.EscapeDN)
	}
	return t.render(name, func(s string) string { return s })
}
