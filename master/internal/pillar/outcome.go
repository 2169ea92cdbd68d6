package pillar

import (
	"bytes"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"path/filepath"
	"regexp"
	"slices"
	"strings"

	"saltern/master/internal/pillar/memo"
	"saltern/master/internal/pillar/renderer"
	"saltern/master/value"
)

// Compare configures a Compiler whose results are compared with those of another one (package
// diff). Such a Compiler opens no secrets: the renderer gpg and decrypt_pillar leave ciphertext as it
// is, which shows that a secret changes without its value.
type Compare struct {
	// Confined means that nothing with an effect runs: templates are recorded only, and a template
	// that cannot be recorded is refused. Of ext_pillar only git runs.
	Confined bool
	// Untrusted are directories with files that nobody has approved. A template in them may import
	// only files in them. It is nil without Confined.
	Untrusted []string
	// States means that Roots hold states and not pillars: Outcome compiles what a highstate would
	// render. It is nil for pillars.
	States *States
	// Hide returns a pillar without its secrets, for the templates of a confined compilation.
	Hide func(*value.Map) *value.Map
}

// States are the options of a minion's highstate (salt/state.py).
type States struct {
	Merging    string // top_file_merging_strategy; "": merge
	DefaultTop string // default_top; "": base
}

func (c *Compare) ofStates() bool { return c != nil && c.States != nil }

// FileKey names an SLS of an environment. SLS is "" for the environment's top file.
type FileKey struct{ Env, SLS string }

// Refusal is a file that a compilation has left out, because its result cannot be told.
type Refusal struct {
	FileKey
	Reason string
	Sum    [sha256.Size]byte // digest of the file's text, of what it imports, and of its variables
}

// Outcome is the result of a compilation for a comparison.
type Outcome struct {
	Pillar   *value.Map
	Selected []FileKey // the SLS that top files select, in order
	Refused  []Refusal
	// Secret holds values that come from sources of secrets: ext_pillar, and SLS that name such a
	// source. They may be compared but not shown.
	Secret []any
	// Given holds the values of all files, also those that other files override.
	Given []any

	skip   map[FileKey]bool
	marks  map[FileKey]fileMark
	values int // values of all files so far
}

// Bounds of what is compared, in values: the files may be written to take the master's memory.
const (
	maxComparedFile   = 1 << 17 // of one file
	maxComparedValues = 1 << 19 // of all files of a minion
)

// spendValues counts the values of a file. More than maxComparedValues end the compilation.
func (c *compilation) spendValues(v any) error {
	if c.outcome == nil {
		return nil
	}
	c.outcome.values += countValues(v, maxComparedValues)
	if c.outcome.values <= maxComparedValues {
		return nil
	}
	err := fmt.Errorf("the files of one minion have more than %d values, which is more than a comparison takes", maxComparedValues)
	c.giveUp(err)
	return err
}

// countValues returns how many values there are in v, or a little more than most if there are more.
// A long text counts as several.
func countValues(v any, most int) int {
	const bytesPerValue = 64
	n := 1
	switch v := v.(type) {
	case string:
		n += len(v) / bytesPerValue
	case []byte:
		n += len(v) / bytesPerValue
	case *value.Map:
		for k, x := range v.All() {
			if n > most {
				break
			}
			n += countValues(k, most-n) + countValues(x, most-n)
		}
	case []any:
		for _, x := range v {
			if n > most {
				break
			}
			n += countValues(x, most-n)
		}
	}
	return n
}

// Rendered reports whether a file was rendered, and neither refused nor skipped.
func (o *Outcome) Rendered(key FileKey) bool {
	_, there := o.marks[key]
	return there && !slices.ContainsFunc(o.Refused, func(r Refusal) bool { return r.FileKey == key })
}

// Sum returns a digest of the Sums of all refused files of a key: several roots may have a file of
// the same name. It returns false if the compilation came to none.
func (o *Outcome) Sum(key FileKey) (sum [sha256.Size]byte, ok bool) {
	h := sha256.New()
	seen := map[[sha256.Size]byte]bool{}
	for _, r := range o.Refused {
		if r.FileKey != key || seen[r.Sum] {
			continue
		}
		seen[r.Sum] = true
		h.Write(r.Sum[:])
	}
	return [sha256.Size]byte(h.Sum(nil)), len(seen) > 0
}

// fileMark says what a comparison has to know about the text of a file.
type fileMark struct {
	pipe   string
	secret bool // the text names a source of secrets
}

// secretSource matches the names of functions and addresses by which templates read secrets.
var secretSource = regexp.MustCompile(`(?i)\b(?:vault|sdb|gpg|nacl|kms|aws_kms|keyring|passwordstore|credstash|keyvault|secretsmanager|1password|ssm)\b`)

// markOf returns the mark of the text of a file. c may be nil: nothing is compared.
func markOf(c *Config, text []byte) fileMark {
	if c == nil {
		return fileMark{}
	}

	pipe := rendererPipe(c, text)
	usual := pipe == jinjaYAML || pipe == "yaml" || pipe == yamlJinja
	return fileMark{
		pipe:   pipe,
		secret: !usual || namesSecrets(text),
	}
}

// namesSecrets reports whether the text of a file names a source of secrets.
func namesSecrets(text []byte) bool {
	return secretSource.Match(text) || bytes.Contains(text, []byte("BEGIN PGP MESSAGE"))
}

// withoutGPG returns a renderer pipe without the renderer gpg, except at its beginning.
func withoutGPG(pipe string) string {
	parts := strings.Split(pipe, "|")
	rest := slices.DeleteFunc(parts[1:], func(part string) bool { return part == "gpg" })
	return strings.Join(append(parts[:1], rest...), "|")
}

// Outcome compiles the pillar of a minion for a comparison, or with Compare.States what a highstate
// would render. pillar is the minion's pillar that templates and targets of states see; it may be
// nil for pillars. The files in skip count as empty.
func (c *Compiler) Outcome(
	ctx context.Context,
	req Request,
	pillar *value.Map,
	skip map[FileKey]bool,
) (*Outcome, error) {
	out := &Outcome{skip: skip, marks: map[FileKey]fileMark{}}
	n := c.newCompilation(ctx, req)
	n.outcome = out
	defer n.giveUp(nil)

	if err := n.admit(); err != nil {
		return nil, err
	}
	if needsPython(c.cfg.Strategy, c.cfg.Renderer) {
		return nil, errors.New("the renderer yamlex and the pillar_source_merging_strategy aggregate cannot be compared")
	}

	if c.cfg.Compare.ofStates() {
		n.pillar = n.hideFromTemplates(pillar)
	}

	p, err := c.compileMemoized(n, func(n *compilation) (*value.Map, error) {
		defer n.closeSession()
		*out = Outcome{skip: skip, marks: map[FileKey]fileMark{}} // a second compilation begins with nothing
		if c.cfg.Compare.ofStates() {
			return n.compileStates()
		}
		return n.compilePillar()
	})
	if cause := context.Cause(n.ctx); cause != nil {
		err = cause
	}
	if err != nil {
		return nil, fmt.Errorf("compile the pillar of %s: %w", req.ID, err)
	}

	out.Pillar = p
	return out, nil
}

// compileStates renders the SLS that the top files of states select for a minion, and merges them.
func (c *compilation) compileStates() (*value.Map, error) {
	top := c.mergedTop(c.mergeStateTops)
	states := c.renderSelected(c.matchTops(top)).Clone()
	c.errors = append(c.errors, c.topErrors...)
	c.setErrors(states)
	return states, nil
}

func (c *compilation) isConfined() bool {
	return c.compiler.cfg.Compare != nil && c.compiler.cfg.Compare.Confined
}

// hideFromTemplates returns the pillar that the templates of a compilation may see.
func (c *compilation) hideFromTemplates(pillar *value.Map) *value.Map {
	if !c.isConfined() || c.compiler.cfg.Compare.Hide == nil {
		return pillar.Clone()
	}
	return c.compiler.cfg.Compare.Hide(pillar)
}

// renderConfined renders a template that Go cannot render, without its effects.
func (c *compilation) renderConfined(
	p parsed,
	path, env, name string,
	defaults *value.Map,
	share *sharedTemplate,
) (any, error) {
	if p.plain && !p.shareable {
		return nil, p.err
	}
	if !p.shareable {
		why := "is rendered by " + p.mark.pipe
		if c.compiler.cfg.RestrictedRenderers {
			why = "cannot be rendered with renderer_whitelist or renderer_blacklist"
		}
		return c.refuse(path, env, name, why, defaults)
	}
	if c.compiler.cfg.Renderers == nil {
		return nil, errNoRenderers
	}

	v, known := share.cachedResult()
	if !known {
		session, err := c.openSession(func() bool {
			v, known = share.cachedResult()
			return !known
		})
		if fault, isFault := errors.AsType[*renderer.Failure](err); isFault && !known {
			return c.refuse(path, env, name, "cannot be rendered here: "+fault.Kind, defaults)
		}
		if err != nil && !known {
			return nil, err
		}
		if !known {
			v, err = c.recordConfined(session, renderer.Template{
				Path:    path,
				SLS:     name,
				Saltenv: env,
				Pillar:  true,
				Sealed:  true,
				Context: defaults,
			}, share)
			if err != nil {
				return nil, err
			}
		}
	}

	switch v := v.(type) {
	case renderer.Unshareable:
		return c.refuse(path, env, name, string(v), defaults)
	case *renderer.Failure:
		return nil, v
	}
	return v, nil
}

// recordConfined renders a template in Python and stores the result in the memo: a value, the
// reason of a refusal (renderer.Unshareable), or the template's fault (*renderer.Failure).
func (c *compilation) recordConfined(
	session *renderer.Session,
	t renderer.Template,
	share *sharedTemplate,
) (any, error) {
	v, trace, err := session.Confined(c.ctx, t)
	var refused renderer.Unshareable
	var fault *renderer.Failure
	switch {
	case errors.As(err, &refused):
		v = c.shownRefusal(refused, t.Path, trace.Files)
	case errors.As(err, &fault) && trace.Sum != (memo.Sum{}):
		const longest = 2000
		v = &renderer.Failure{Message: fault.Message[:min(len(fault.Message), longest)], Kind: fault.Kind}
	case errors.As(err, &fault): // no fault of the template: its result cannot be sent, or takes too much memory
		return renderer.Unshareable("gives a result that is too large, or cannot be sent"), nil
	case err != nil:
		c.giveUpIfUnable(err)
		return nil, err
	}

	c.noteImports(trace.Files)
	if file := c.importedFromElsewhere(t.Path, trace.Files); file != "" {
		v = renderer.Unshareable("imports a file that is not a part of what is compared")
	}

	if share != nil && trace.Sum == share.sum {
		c.compiler.cfg.Memo.Put(share.key, share.minion(), trace, v)
	}
	return v, nil
}

// importedFromElsewhere returns a file outside of the untrusted directories that a template in them
// has imported, or "".
func (c *compilation) importedFromElsewhere(path string, files []memo.File) string {
	within := func(path string) bool {
		return slices.ContainsFunc(c.compiler.cfg.Compare.Untrusted, func(dir string) bool {
			rel, err := filepath.Rel(dir, path)
			return err == nil && filepath.IsLocal(rel)
		})
	}
	if !within(path) {
		return ""
	}
	for _, f := range files {
		if !f.Missing && !within(f.Path) {
			return f.Path
		}
	}
	return ""
}

// refuse notes that the result of a file cannot be told. The file counts as empty. defaults are the
// variables that an include gives to it.
func (c *compilation) refuse(path, env, name, reason string, defaults *value.Map) (any, error) {
	sum := c.compiler.sources.sourceOf(c.ctx, c.compiler.files, c.envNamed(env), path).sum
	if defaults.Len() > 0 {
		var err error
		if sum, err = memo.KeyOf(sum[:], defaults); err != nil {
			return nil, err
		}
	}

	c.outcome.Refused = append(c.outcome.Refused, Refusal{
		FileKey: FileKey{env, name},
		Reason:  reason,
		Sum:     sum,
	})
	return value.NewMap(), nil
}

// noteFile notes that a file is about to be rendered for a comparison, and reports whether it is
// skipped. A template that imports a file with secrets counts as one with secrets.
func (c *compilation) noteFile(p parsed, path, env, name string) (skipped bool) {
	if c.outcome == nil {
		return false
	}

	mark := p.mark
	if !mark.secret && !p.plain {
		mark.secret = c.compiler.sources.sourceOf(c.ctx, c.compiler.files, c.envNamed(env), path).secret
	}
	key := FileKey{env, name}
	c.outcome.marks[key] = mark
	return c.outcome.skip[key]
}

// noteResult notes the value of a file. o may be nil.
func (o *Outcome) noteResult(env, name string, v any) {
	if o == nil || v == nil {
		return
	}
	if o.marks[FileKey{env, name}].secret {
		o.Secret = append(o.Secret, v)
		return
	}
	o.Given = append(o.Given, v)
}

// noteExtPillar notes what an ext_pillar has added to a pillar. o may be nil.
func (o *Outcome) noteExtPillar(before, after *value.Map) {
	if o == nil {
		return
	}
	for key, v := range after.All() {
		if old, there := before.GetAny(key); !there || !value.Equal(old, v) {
			o.Secret = append(o.Secret, value.NewMap(key, v))
		}
	}
}

// noteSelected notes the SLS that top files select. o may be nil.
func (o *Outcome) noteSelected(found []selected) {
	if o == nil {
		return
	}
	for _, s := range found {
		for _, name := range s.sls {
			o.Selected = append(o.Selected, FileKey{s.env, name})
		}
	}
}
