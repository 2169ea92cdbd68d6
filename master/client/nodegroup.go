package client

import (
	"cmp"
	"fmt"
	"regexp"
	"slices"
	"strings"

	"saltern/master/target"
	"saltern/master/value"
)

// target replaces the nodegroups in a target by their expressions, so that minions need not know
// the groups (salt/client/__init__.py _prep_pub). A group that the configuration does not have may be a
// saved target, which the master knows: it stays in the target as N@NAME, and the master says if it
// does not know it either.
func (c *Client) target(tgt any, typ string) (any, string, error) {
	switch typ {
	case "range":
		return nil, "", &Error{Kind: Invocation, Message: "Range targets need a range server, which is not supported."}
	case "nodegroup":
		name, ok := tgt.(string)
		if !ok {
			return nil, "", &Error{Kind: Invocation, Message: "A nodegroup is named by one word."}
		}

		words, err := c.nodegroup(name)
		if err != nil {
			return nil, "", err
		}

		return strings.Join(words, " "), "compound", nil
	case "compound":
		var words []string
		switch t := tgt.(type) {
		case string:
			words = strings.Fields(t)
		case []any:
			for _, w := range t {
				words = append(words, value.Str(w))
			}
		}

		var out []string
		for _, w := range words {
			if !strings.HasPrefix(w, "N@") || len(w) == 2 {
				out = append(out, w)
				continue
			}

			resolved, err := c.nodegroup(w[2:])
			if err != nil {
				return nil, "", err
			}

			out = append(out, resolved...)
		}

		return strings.Join(out, " "), typ, nil
	}

	return tgt, typ, nil
}

func (c *Client) nodegroup(name string) ([]string, error) {
	if _, ok := c.cfg.Nodegroups.Get(name); !ok {
		if target.MaySave(name) {
			return []string{"N@" + name}, nil
		}
		file := c.cfg.ConfFile
		file = cmp.Or(file, "the master config file")
		return nil, &Error{Kind: Invocation, Message: fmt.Sprintf("Node group %s unavailable in %s", name, file)}
	}
	unable := func(reason, group string) {
		c.cfg.Log.Error(fmt.Sprintf("Failed nodegroup expansion: %s nodegroup %q", reason, group))
	}
	return expandNodegroup(name, c.cfg.Nodegroups, nil, true, unable), nil
}

var operators = []string{"and", "or", "not", "(", ")"}

// expandNodegroup returns the compound expression of a nodegroup, with inner groups in parentheses.
// An unknown or circular group is expanded like an empty one, and expandNodegroup calls unable with
// the reason (salt/utils/minions.py nodegroup_comp). An unknown group that may be a saved target stays
// as it is.
func expandNodegroup(
	name string,
	groups *value.Map,
	above []string,
	first bool,
	unable func(reason, group string),
) []string {
	v, ok := groups.Get(name)
	switch {
	case slices.Contains(above, name):
		unable("illegal nested", name)
		return nil
	case !ok && target.MaySave(name):
		return []string{"N@" + name}
	case !ok:
		unable("unknown", name)
		return nil
	}

	var words []string
	switch v := v.(type) {
	case string:
		words = strings.Fields(v)
	case []any:
		for _, w := range v {
			words = append(words, value.Str(w))
		}
	default:
		return nil
	}

	above = append(slices.Clone(above), name)
	var ret []string
	expanded := false
	for _, w := range words {
		if strings.HasPrefix(w, "N@") && len(w) > 2 {
			expanded = true
			ret = append(ret, expandNodegroup(w[2:], groups, above, false, unable)...)
			continue
		}
		ret = append(ret, w)
	}

	if len(ret) > 0 {
		ret = slices.Concat([]string{"("}, ret, []string{")"})
	}

	if expanded && first {
		return ret
	}

	if joined := plainNodegroup(words); joined != "" {
		return []string{joined}
	}
	if first {
		return words
	}

	return ret
}

var groupType = regexp.MustCompile(`^[A-Z]@`)

// plainNodegroup returns one word of a compound expression for a nodegroup that is only a list of
// names, or only of regular expressions. It returns "" for any other group.
func plainNodegroup(words []string) string {
	if len(words) == 0 {
		return ""
	}
	kind := "L@"
	for _, w := range words {
		if slices.Contains(operators, w) || strings.Contains(w, "*") || groupType.MatchString(w) {
			return ""
		}
		if strings.ContainsAny(w, `([{\?}])`) {
			kind = "E@"
		}
	}
	return kind + strings.Join(words, ",")
}
