package explain

import (
	"fmt"
	"slices"
	"strings"

	"saltern/internal/control"
	"saltern/internal/printable"
	"saltern/master/internal/acl"
	"saltern/master/pattern"
	"saltern/master/value"
)

// rightsOf returns which rules of external_auth and publisher_acl let a user run a function, without
// arguments, on a minion.
func (s *Service) rightsOf(q control.ExplainQuestion) *control.ExplainedRights {
	o := s.cfg.Options
	out := &control.ExplainedRights{}
	if q.User == "root" || q.User == o.User {
		out.Allowed = true
		out.Rules = []string{"the master's own user may run everything"}
		return out
	}

	black := acl.Blacklist{
		Users:   o.PublisherACLBlacklist.Texts("users"),
		Modules: o.PublisherACLBlacklist.Texts("modules"),
	}
	if black.Refuses(q.User, []string{q.Function}) {
		out.Note = "publisher_acl_blacklist refuses the user or the function"
		return out
	}

	for system, section := range o.ExternalAuth.All() {
		rules, _ := section.(*value.Map)
		s.rightsOfSection(q, fmt.Sprint("external_auth ", system), rules, out)
	}
	for user, grants := range o.PublisherACL.All() {
		name, _ := user.(string)
		list, _ := grants.([]any)
		if pattern.Expr(q.User, name) {
			s.addRules(q, "publisher_acl "+name, list, out)
		}
	}
	if !out.Allowed && out.Note == "" {
		out.Note = "no rule of external_auth or publisher_acl names the user and this function without conditions on its arguments"
	}
	return out
}

// rightsOfSection adds the rules of a section of external_auth.
func (s *Service) rightsOfSection(q control.ExplainQuestion, system string, section *value.Map, out *control.ExplainedRights) {
	named := section.List(q.User) != nil
	for k, v := range section.All() {
		key, _ := k.(string)
		grants, _ := v.([]any)
		group, isGroup := strings.CutSuffix(key, "%")
		everybody := key == "*" && (!named || s.cfg.Options.PermissiveACL)
		switch {
		case strings.HasPrefix(key, "^"): // an option of the system
		case isGroup && s.allows(q, grants):
			out.Note = "members of a group may, and who is a member is known at the log-in only: " + groupsNote(out.Note, system+" "+group)
		case key == q.User && !isGroup, everybody:
			s.addRules(q, system+" "+key, grants, out)
		}
	}
}

func groupsNote(note, group string) string {
	if _, groups, ok := strings.Cut(note, "only: "); ok {
		return groups + ", " + group
	}
	return group
}

// addRules adds the grants that allow the function.
func (s *Service) addRules(q control.ExplainQuestion, where string, grants []any, out *control.ExplainedRights) {
	const most, longest = 20, 300
	for _, grant := range grants {
		if !s.allows(q, []any{grant}) {
			continue
		}
		out.Allowed = true
		if len(out.Rules) < most {
			out.Rules = append(out.Rules, printable.Clip(printable.Line(where+": "+value.StrMax(grant, longest)), longest))
		}
	}
}

// allows reports whether grants allow the function on the minion.
func (s *Service) allows(q control.ExplainQuestion, grants []any) bool {
	request := acl.Request{Funs: []string{q.Function}, Args: []any{[]any{}}, Minions: []string{q.Minion}}
	form, function, special := strings.Cut(q.Function, ".")
	if special && slices.Contains([]string{"runner", "wheel"}, form) {
		return acl.Special(grants, form, function, nil, nil)
	}
	return acl.Publish(grants, request, func(compound string) ([]string, error) {
		return s.cfg.Targets.Among(nil, compound, "compound", q.Minion)
	})
}
