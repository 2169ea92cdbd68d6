package pillar

import (
	"cmp"
	"errors"
	"fmt"
	"regexp"
	"strconv"
	"strings"

	"saltern/master/conf"
	"saltern/master/internal/pillar/memo"
	"saltern/master/internal/pillar/renderer"
	"saltern/master/saltyaml"
)

// failureText returns the text for _errors if an SLS cannot be rendered, and logs the error. Errors
// of templates may contain secrets, so the text contains the details only with
// Config.ShowRenderErrors. path is the SLS's file; it may be "".
func (c *compilation) failureText(name, path string, err error) string {
	if c.isOver() {
		return ""
	}

	attrs := append([]any{"minion", c.req.ID, "sls", name}, c.logAttrs(err, path)...)
	switch {
	case errors.Is(err, errNoRenderers), errors.Is(err, renderer.ErrNoSalt):
		c.compiler.log.Error("a pillar SLS needs Salt's Python renderers, which this master does not have; install the Salt library for Python, or write the SLS as plain YAML",
			attrs...)
		return fmt.Sprintf("Rendering SLS '%s' failed: it needs Salt's Python renderers, which are not available on the salt master. Please see master log for details.",
			name)
	}

	if c.outcome != nil {
		return fmt.Sprintf("Rendering SLS '%s' failed: %s", name, faultText(attrs[4:]))
	}

	c.compiler.log.Error("a pillar SLS cannot be rendered", attrs...)
	if c.compiler.cfg.ShowRenderErrors {
		return fmt.Sprintf("Rendering SLS '%s' failed, render error:\n%v", name, err)
	}

	return fmt.Sprintf("Rendering SLS '%s' failed. Please see master log for details.", name)
}

// lineNumber matches the line number in an error of a template.
var lineNumber = regexp.MustCompile(`\bline (\d{1,6})\b`)

// jinjaFault matches the beginning of an error of a name that Jinja does not find: the name of a
// variable, or an object's class and the name of its attribute, and the line.
var jinjaFault = regexp.MustCompile(
	`^Jinja variable '(?:([\w ]{1,64})' is undefined|([\w ]{1,64})' has no attribute '([\w-]{1,64})')(?:; line (\d{1,6}))?`)

// quotedText matches what an error quotes. A key that occurs twice stands between quotes as it is
// (saltyaml/construct.go), and ends the error.
var quotedText = regexp.MustCompile("ID '(?s:.*)'$|\"(?:[^\"\\\\]|\\\\.)*\"|'[^']*'|`[^`]*`")

// hideQuoted returns what an error may show of what it quotes: a single character only.
func hideQuoted(quoted string) string {
	if key, isKey := strings.CutPrefix(quoted, "ID "); isKey {
		return "ID " + hideQuoted(key)
	}
	if len(quoted) <= len(`","`) {
		return quoted
	}
	return conf.Hidden
}

// logAttrs returns log attributes of an error without secrets. For an error of a template or a
// module the attributes are the error's class and its line, because the text of such an error
// contains parts of the pillar. That text is logged at level debug only. path is the template's
// file; it may be "".
func (c *compilation) logAttrs(err error, path string) []any {
	if attrs := secretAttrs(err); attrs != nil {
		c.compiler.log.Debug("a secret cannot be decrypted", "minion", c.req.ID, "error", err)
		return attrs
	}

	if wrong, ok := errors.AsType[*saltyaml.Error](err); ok {
		c.compiler.log.Debug("an error of YAML", "minion", c.req.ID, "error", err)
		shown := &saltyaml.Error{
			Name: wrong.Name,
			Line: wrong.Line,
			Err:  errors.New(quotedText.ReplaceAllStringFunc(wrong.Err.Error(), hideQuoted)),
		}
		text, _, _ := strings.Cut(shown.Error(), "\n")
		return []any{"error", text}
	}

	var f *renderer.Failure
	if !errors.As(err, &f) {
		text, _, _ := strings.Cut(err.Error(), "\n")
		return []any{"error", text}
	}

	c.compiler.log.Debug("an error of a template or module", "minion", c.req.ID, "error", err, "trace", f.Trace)
	attrs := []any{"class", f.Kind}
	if what := c.shownFault(f.Message, path); what != "" {
		attrs = append(attrs, "fault", what)
	}

	if m := lineNumber.FindStringSubmatch(f.Message); m != nil {
		attrs = append(attrs, "line", m[1])
	}

	return append(attrs, "details", "at log level debug")
}

// shownFault returns what may be shown of an error of Jinja, or "". The name that Jinja does not
// find may be a value, as in {{ users[password] }}. So it is shown only if it stands in the
// template's code at that line.
func (c *compilation) shownFault(message, path string) string {
	found := jinjaFault.FindStringSubmatch(message)
	if found == nil {
		return ""
	}

	variable, class, attribute, line := found[1], found[2], found[3], found[4]
	name := cmp.Or(variable, attribute)
	if number, err := strconv.Atoi(line); err != nil || !c.hasInCode(path, name, number) {
		name = conf.Hidden
	} else {
		name = "'" + name + "'"
	}

	shown := "Jinja variable " + name + " is undefined"
	if class != "" {
		shown = "Jinja variable '" + class + "' has no attribute " + name
	}
	if line != "" {
		shown += "; line " + line
	}
	return shown
}

// hasInCode reports whether a name stands in the code of a template at a line; 0: at any.
func (c *compilation) hasInCode(path, name string, line int) bool {
	if path == "" || c.compiler.cfg.CustomJinja {
		return false
	}
	text, _, _, err := c.compiler.files.loadFile(path)
	return err == nil && standsInCode(string(text), name, line)
}

// shownRefusal returns what may be shown of the reason why a template cannot be recorded
// (reads.py). The template may have computed the name of what it calls, or of a key. Such a name is
// shown only if it stands in the code of the template or of the files that it imports.
func (c *compilation) shownRefusal(reason renderer.Unshareable, path string, imports []memo.File) renderer.Unshareable {
	text := string(reason)
	for _, kind := range refusalsWithNames {
		found := kind.form.FindStringSubmatch(text)
		if found == nil {
			continue
		}

		isShown := c.hasInCode(path, found[1], 0)
		for _, file := range imports {
			isShown = isShown || !file.Missing && c.hasInCode(file.Path, found[1], 0)
		}
		if !isShown {
			return renderer.Unshareable(kind.without + found[2])
		}
	}
	return reason
}

// refusalsWithNames are the reasons in which a template may have computed the name: their form, with
// the name and what comes after it, and the words that take the place of the name and what is before it.
var refusalsWithNames = []struct {
	form    *regexp.Regexp
	without string
}{
	{
		form:    regexp.MustCompile(`(?s)^calls (.*?)( of another module than Salt's| with arguments that are not known| with a key that is no text|)$`),
		without: "calls what the template computes",
	},
	{
		form:    regexp.MustCompile(`(?s)^asks for the key (.*)( that Salt also reads as YAML)$`),
		without: "asks for a key",
	},
	{
		form:    regexp.MustCompile(`(?s)^is given (.*)( by an include)$`),
		without: "is given a variable of Salt's",
	},
}

// faultText returns log attributes as a text, for a compilation that is compared and not logged.
func faultText(attrs []any) string {
	var words []string
	for i := 0; i+1 < len(attrs); i += 2 {
		if attrs[i] != "details" {
			words = append(words, fmt.Sprintf("%v %v", attrs[i], attrs[i+1]))
		}
	}
	return strings.Join(words, ", ")
}
