package pillar

import (
	"bytes"
	"errors"
	"fmt"
	"slices"
	"strings"
	"unicode/utf8"

	"saltern/master/internal/pillar/gpg"
	"saltern/master/value"
)

// gpgStep says where the renderer gpg stands in the renderer pipe of a file, if Go does its work.
type gpgStep int

const (
	noGPG    gpgStep = iota // nowhere, or Python does its work
	gpgLast                 // after YAML: in the texts of a value
	gpgFirst                // before YAML: in the text of the file
)

// gpgStepOf returns where gpg stands in the renderer pipe of a file. It returns noGPG for a file with
// values that Go's YAML parser does not distinguish and Salt's gpg does: it decrypts lists, but neither
// sets nor tuples, and it visits a map that has an alias twice, so that it opens a message within a message.
func gpgStepOf(c *Config, text []byte) gpgStep {
	if c.GPG == nil || c.Compare != nil || c.RestrictedRenderers {
		return noGPG
	}

	switch fullPipe(c, text) {
	case "yaml|gpg", "jinja|yaml|gpg":
		for _, tag := range []string{"!!set", "!!omap", "!!pairs", "!<", "%TAG"} {
			if bytes.Contains(text, []byte(tag)) {
				return noGPG
			}
		}
		mayHaveAlias := bytes.ContainsRune(text, '&') && bytes.ContainsRune(text, '*')
		if utf8.Valid(text) && !mayHaveAlias {
			return gpgLast
		}
	case "gpg|yaml":
		// Salt reads line ends in another way in each release (salt/template.py compile_template).
		if utf8.Valid(text) && !bytes.ContainsAny(text, "\r\ufeff") {
			return gpgFirst
		}
	}

	return noGPG
}

// gpgArguments are variables of an include that Salt passes to the renderer gpg as its arguments.
var gpgArguments = []string{"translate_newlines", "encoding"}

// renderParsed renders a file with all renderers of its pipe.
func (c *compilation) renderParsed(p parsed, path, env, name string, defaults *value.Map) (any, error) {
	hasArgument := func(arg string) bool {
		_, there := defaults.Get(arg)
		return there
	}
	inPython := c.compiler.distrusted.has(path, p.id) || slices.ContainsFunc(gpgArguments, hasArgument)
	if p.gpg != noGPG && inPython {
		p = parsed{id: p.id, mark: p.mark}
	}

	if p.gpg == gpgFirst {
		opened, err := c.openSecrets(p.value)
		if err != nil {
			return nil, err
		}
		p = c.parseOpened(p, opened, path)
	}

	v, err := c.renderWithoutGPG(p, path, env, name, defaults)
	if err != nil || p.gpg == noGPG || c.check != nil {
		return v, err
	}
	return c.openSecrets(v)
}

var errNotText = errors.New("gpg gives bytes that are no text")

// parseOpened returns a file as a plain one, whose decrypted text is known. Of a fault in it Salt says
// what is wrong, if there is Python.
func (c *compilation) parseOpened(p parsed, opened any, path string) parsed {
	out := parsed{id: p.id, plain: true}
	text, ok := opened.(string)
	if !ok {
		out.err = errNotText
		return out
	}
	out.value, out.err = parseYAML([]byte(text), path, c.compiler.files.limits())
	return out
}

// openSecrets returns a value with all its PGP messages decrypted. After an error the value holds what
// was decrypted before it.
func (c *compilation) openSecrets(v any) (any, error) {
	v, err := c.compiler.cfg.GPG.Value(c.ctx, c.req.secrets, c.takeTurnForGPG, v)
	c.giveUpIfUnable(err)
	return v, err
}

// takeTurnForGPG takes the turn that a compilation needs for a program. It returns errMustWait if there
// is none.
func (c *compilation) takeTurnForGPG() error {
	if c.takeTurn != nil && !c.takeTurn() {
		c.giveUp(errMustWait)
		return errMustWait
	}
	return nil
}

// DecryptKeys is the option decrypt_pillar.
type DecryptKeys struct {
	Keys      []string // paths in a pillar
	Delimiter string   // between the parts of a path (decrypt_pillar_delimiter)
}

// ReadDecryptKeys returns the keys of decrypt_pillar in a master's options. It returns nil if Salt has to
// read them, because they name another renderer than gpg or have another form than a list of names
// (salt/pillar/__init__.py decrypt_pillar).
func ReadDecryptKeys(opts *value.Map) *DecryptKeys {
	delimiter, isText := opts.Value("decrypt_pillar_delimiter").(string)
	if _, set := opts.Get("decrypt_pillar_delimiter"); !set {
		delimiter = ":"
		isText = true
	}

	usual, set := opts.Get("decrypt_pillar_default")
	if !set {
		usual = "gpg"
	}
	valid, set := opts.Get("decrypt_pillar_renderers")
	if list, isList := valid.([]any); set && (!isList || len(list) > 0 && !slices.Contains(list, any("gpg"))) {
		return nil
	}
	if !isText || delimiter == "" {
		return nil
	}

	out := &DecryptKeys{Delimiter: delimiter}
	for _, entry := range opts.List("decrypt_pillar") {
		key, rend, ok := decryptEntry(entry)
		if !value.Truth(rend) {
			rend = usual
		}
		if !ok || rend != "gpg" {
			return nil
		}
		if !slices.Contains(out.Keys, key) {
			out.Keys = append(out.Keys, key)
		}
	}

	if len(out.Keys) == 0 {
		return nil
	}
	return out
}

// decryptEntry reads an entry of decrypt_pillar: a name, or a map of one name to a renderer.
func decryptEntry(entry any) (key string, rend any, ok bool) {
	switch entry := entry.(type) {
	case string:
		return entry, nil, true
	case *value.Map:
		if entry.Len() != 1 {
			return "", nil, false
		}
		for k, v := range entry.All() {
			key, ok = k.(string)
			rend = v
		}
		switch rend.(type) {
		case nil, string:
			return key, rend, ok
		}
	}
	return "", nil, false
}

// decryptInGo returns a pillar with the values of decrypt_pillar decrypted.
func (c *compilation) decryptInGo(pillar *value.Map) *value.Map {
	keys := c.compiler.cfg.DecryptKeys
	var errs []string
	for _, key := range keys.Keys {
		path := strings.Split(key, keys.Delimiter)
		v, there := valueAt(pillar, path)
		if !there || v == nil {
			continue
		}

		opened, err := c.openSecrets(v)
		if c.isOver() {
			return pillar
		}
		if err != nil {
			c.compiler.log.Error("a key of the pillar cannot be decrypted (decrypt_pillar)",
				append([]any{"minion", c.req.ID, "key", key}, c.logAttrs(err, "")...)...)
			errs = append(errs, fmt.Sprintf("Failed to decrypt pillar key '%s': %v", key, err))
		}

		// Salt decrypts maps and lists in place, so what it decrypted before an error stays.
		if isContainer(v) || err == nil {
			if !isContainer(v) && len(path) == 2 && path[0] == "" {
				path = path[1:] // Salt takes the pillar for the parent
			}
			pillar = withValueAt(pillar, path, opened)
		}
	}

	addErrors(pillar, errs)
	return pillar
}

func isContainer(v any) bool {
	switch v.(type) {
	case *value.Map, []any:
		return true
	}
	return false
}

// valueAt returns the value at a path in a pillar (salt/utils/data.py traverse_dict).
func valueAt(pillar *value.Map, path []string) (any, bool) {
	var v any = pillar
	for _, part := range path {
		m, ok := v.(*value.Map)
		if !ok {
			return nil, false
		}
		if v, ok = m.Get(part); !ok {
			return nil, false
		}
	}
	return v, true
}

// withValueAt returns a copy of a pillar with another value at a path, whose parents exist.
func withValueAt(pillar *value.Map, path []string, v any) *value.Map {
	out := pillar.Clone()
	if len(path) > 1 {
		v = withValueAt(out.Map(path[0]), path[1:], v)
	}
	out.Set(path[0], v)
	return out
}

// secretAttrs returns log attributes of an error of gpg, or nil for another error.
func secretAttrs(err error) []any {
	if failure, ok := errors.AsType[*gpg.Failure](err); ok {
		return []any{"error", failure.Reason}
	}
	if errors.Is(err, gpg.ErrUnavailable) {
		return []any{"error", "there is no program gpg on this machine; install it: apt install gpg gpg-agent"}
	}
	return nil
}
