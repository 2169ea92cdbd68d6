package pillar

import (
	"bytes"
	"context"
	"crypto/sha256"
	"fmt"
	"hash"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
)

// Bounds of what sourceSums follows and keeps.
const (
	maxSourceSums     = 10000
	maxImportedFiles  = 200
	maxImportedBytes  = 32 << 20
	maxFollowedImport = 2000 // tags of all files of one digest
)

// importTag matches a Jinja tag that imports a file, with the file's name if the tag has nothing but a
// text in its place.
var importTag = regexp.MustCompile(`\{%[-+]?\s*(?:import_\w+|import|from|include|extends)\s+` +
	`(?:(?:"([^"{}]*)"|'([^'{}]*)')\s*(?:[-+]?%\}|as\b|import\b|ignore\b|with\b|without\b))?`)

// source says what a comparison has to know about a file and what it imports from an environment.
type source struct {
	// sum is a digest. It holds for this path alone if the file imports a file by a computed name, or
	// more than the bounds.
	sum    [sha256.Size]byte
	secret bool // the file, or one that it imports by a plain name, names a source of secrets
}

// sourceSums knows files with what they import. As long as the digest of a file that cannot be rendered
// is the same, the file gives the same. It is safe for concurrent use.
type sourceSums struct {
	mu    sync.Mutex
	known map[string]source // by path and environment
}

// sourceOf returns what is to know about a file. When ctx has ended, it means nothing.
func (s *sourceSums) sourceOf(ctx context.Context, f *files, env environment, path string) source {
	key := strings.Join(append([]string{path, env.name}, env.dirs...), "\x00")
	s.mu.Lock()
	found, known := s.known[key]
	s.mu.Unlock()
	if known {
		return found
	}

	d := &sourceDigest{
		ctx:   ctx,
		files: f,
		env:   env,
		hash:  sha256.New(),
		seen:  map[string]int{},
		bytes: maxImportedBytes,
		tags:  maxFollowedImport,
	}
	d.addFile(path)
	found = source{sum: [sha256.Size]byte(d.hash.Sum(nil)), secret: d.secret}
	if ctx.Err() != nil {
		return found
	}

	s.mu.Lock()
	defer s.mu.Unlock()
	if s.known == nil || len(s.known) >= maxSourceSums {
		s.known = map[string]source{}
	}
	s.known[key] = found
	return found
}

// sourceDigest makes one digest. It reads each file once, whatever imports it.
type sourceDigest struct {
	ctx   context.Context
	files *files
	env   environment
	hash  hash.Hash
	seen  map[string]int // position of each file that was read
	bytes int            // bytes that may still be read
	tags  int            // tags that may still be followed
	// secret means that one of the files names a source of secrets.
	secret bool
}

// addFile adds a file and what it imports.
func (d *sourceDigest) addFile(path string) {
	if at, again := d.seen[path]; again {
		fmt.Fprintf(d.hash, "file %d again\n", at)
		return
	}
	if len(d.seen) >= maxImportedFiles || d.bytes <= 0 || d.ctx.Err() != nil {
		d.addPath(path)
		return
	}

	d.seen[path] = len(d.seen)
	text, _, _, err := d.files.loadFile(path)
	if err != nil {
		d.addPath(path)
		return
	}

	d.bytes -= len(text)
	fmt.Fprintf(d.hash, "file of %d bytes\n", len(text))
	d.hash.Write(text)
	d.secret = d.secret || namesSecrets(text)
	if bytes.Contains(text, []byte("#jinja2:")) { // its tags may have another form
		d.addPath(path)
	}
	for rest := text; ; {
		tag := importTag.FindSubmatchIndex(rest)
		if tag == nil {
			return
		}
		d.tags--
		if d.tags < 0 || d.ctx.Err() != nil {
			d.addPath(path)
			return
		}
		d.addImport(path, nameIn(rest, tag))
		rest = rest[tag[1]:]
	}
}

// nameIn returns the text of the group of importTag that has matched, or "".
func nameIn(text []byte, tag []int) string {
	for i := 2; i < len(tag); i += 2 {
		if tag[i] >= 0 {
			return string(text[tag[i]:tag[i+1]])
		}
	}
	return ""
}

// addPath makes the digest hold for this path alone.
func (d *sourceDigest) addPath(path string) { fmt.Fprintf(d.hash, "path %q\n", path) }

// addImport adds what a file imports by a name: a file beside it, or one of the environment.
func (d *sourceDigest) addImport(path, name string) {
	if name == "" {
		d.addPath(path)
		return
	}
	if filepath.IsLocal(name) || name[0] == '.' {
		d.addIfThere(filepath.Join(filepath.Dir(path), name))
	}
	if found, err := findFile(d.env, name); err == nil && found != "" {
		d.addIfThere(found)
	}
}

// addIfThere adds a file below a directory of the environment if there is one.
func (d *sourceDigest) addIfThere(path string) {
	for _, dir := range d.env.dirs {
		rel, err := filepath.Rel(dir, path)
		if err != nil || !filepath.IsLocal(rel) {
			continue
		}
		if found, err := findFile(environment{d.env.name, []string{dir}}, rel); err == nil && found != "" {
			d.addFile(found)
			return
		}
	}
	fmt.Fprintln(d.hash, "none")
}
