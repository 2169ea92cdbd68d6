package keys

import (
	"os"
	"regexp"
	"slices"
	"strings"
	"syscall"

	"saltern/master/pattern"
)

// listFile is a file of minion ids. Each line is an exact id, a glob or a regular expression; lines
// with # are comments (utils/stringutils.py expr_match).
type listFile struct {
	sig      fileSig
	known    bool
	exact    map[string]struct{}
	patterns []func(string) (bool, error)
	faulty   int // lines that are neither a glob nor a regular expression
}

// refresh reads the file if it has changed, and reports whether it is usable.
func (l *listFile) refresh(path string, trusted func(string, os.FileInfo) bool) bool {
	st, err := os.Stat(path)
	if err != nil || !st.Mode().IsRegular() || !trusted(path, st) {
		return false
	}
	if l.known && l.sig == sigOf(st) {
		return true
	}

	data, st, err := readRegular(path, maxListFile, true)
	if err != nil || !trusted(path, st) {
		return false
	}

	l.parseLines(string(data))
	l.sig, l.known = sigOf(st), true
	return true
}

// parseLines reads each line as text, glob and regular expression at once, as Salt does. A line
// that is no valid regular expression is used as text and glob. The line is faulty if it can be
// neither an id nor a glob. Unlike in Salt, a regular expression with alternatives must match the
// whole id, too: "a|b" does not match "abc".
func (l *listFile) parseLines(text string) {
	l.exact = map[string]struct{}{}
	l.patterns = nil
	l.faulty = 0
	for line := range strings.Lines(text) {
		line = strings.TrimSpace(line)
		if line == "" || strings.HasPrefix(line, "#") {
			continue
		}

		l.exact[line] = struct{}{}
		if regexp.QuoteMeta(line) == line {
			continue
		}

		if g, err := regexp.Compile(globExpr(line)); err == nil && strings.ContainsAny(line, "*?[") {
			l.patterns = append(l.patterns, func(id string) (bool, error) { return g.MatchString(id), nil })
		}

		if g, err := pattern.CompileWhole(line); err == nil {
			l.patterns = append(l.patterns, g)
		} else if pattern.ExprErr(line) != nil {
			l.faulty++
		}
	}
}

// matches reports as found whether a line matches the id. sure is false when one of the regular
// expressions failed during matching; in that case found may be wrong.
func (l *listFile) matches(id string) (found, sure bool) {
	if _, ok := l.exact[id]; ok {
		return true, true
	}
	sure = true
	for _, p := range l.patterns {
		ok, err := p(id)
		if ok {
			return true, true
		}
		sure = sure && err == nil
	}
	return false, sure
}

// globExpr returns the regular expression for a glob with the rules of Python's fnmatch: * matches
// any text, ? one character, [seq] a character in the set and [!seq] one outside of it. There is no
// escape character.
func globExpr(glob string) string {
	var b strings.Builder
	b.WriteString(`(?s)\A`)
	rest := glob
	for rest != "" {
		c := rest[0]
		switch c {
		case '*':
			b.WriteString(`.*`)
		case '?':
			b.WriteByte('.')
		case '[':
			if class, n := globClass(rest); n > 0 {
				b.WriteString(class)
				rest = rest[n:]
				continue
			}
			b.WriteString(`\[`)
		default:
			n := strings.IndexAny(rest, "*?[")
			if n < 0 {
				n = len(rest)
			}
			b.WriteString(regexp.QuoteMeta(rest[:n]))
			rest = rest[n:]
			continue
		}

		rest = rest[1:]
	}

	b.WriteString(`\z`)
	return b.String()
}

// globClass returns the regular expression for the bracket expression at the start of s. It also
// returns the length of the bracket expression, or 0 when the bracket is not closed.
func globClass(s string) (string, int) {
	i := 1
	if i < len(s) && s[i] == '!' {
		i++
	}

	if i < len(s) && s[i] == ']' {
		i++
	}

	end := strings.IndexByte(s[min(i, len(s)):], ']')
	if end < 0 {
		return "", 0
	}

	end += i
	body, not := s[1:end], ""
	if strings.HasPrefix(body, "!") {
		body, not = body[1:], "^"
	}

	r := strings.NewReplacer(`\`, `\\`, `[`, `\[`, `]`, `\]`, `^`, `\^`)
	return "[" + not + r.Replace(body) + "]", end + 1
}

// inGroup reports whether this process belongs to the group of a file.
func inGroup(st os.FileInfo) bool {
	sys, ok := st.Sys().(*syscall.Stat_t)
	if !ok {
		return false
	}
	groups, err := os.Getgroups()
	if err != nil {
		return false
	}
	return int(sys.Gid) == os.Getegid() || slices.Contains(groups, int(sys.Gid))
}
