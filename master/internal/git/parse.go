package git

import (
	"bytes"
	"encoding/hex"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"
)

// mode is the mode of an entry in a tree. git writes only the modes listed here.
type mode uint32

const (
	modeDir       mode = 0o040000
	modeFile      mode = 0o100644
	modeExec      mode = 0o100755
	modeLink      mode = 0o120000
	modeSubmodule mode = 0o160000
)

// entry is one entry of a directory.
type entry struct {
	name string
	id   string // hexadecimal
	mode mode
}

// tree is a directory: its entries by name.
type tree struct {
	entries []entry
	size    int64 // size in memory, in bytes
}

func (t *tree) findEntry(name string) (entry, bool) {
	i, ok := slices.BinarySearchFunc(t.entries, name, func(e entry, n string) int { return strings.Compare(e.name, n) })
	if !ok {
		return entry{}, false
	}
	return t.entries[i], true
}

var errTree = errors.New("a tree object cannot be read")

// parseTree reads a tree object. Each entry has a mode in octal, a space, a name, a zero byte and
// an id of idSize bytes. parseTree leaves out names that could lead out of the directory, and names
// that are not UTF-8 text.
func parseTree(b []byte, idSize int) (*tree, error) {
	t := &tree{}
	for len(b) > 0 {
		space := bytes.IndexByte(b[:min(len(b), 8)], ' ')
		if space < 5 {
			return nil, errTree
		}

		m, err := strconv.ParseUint(string(b[:space]), 8, 32)
		if err != nil {
			return nil, errTree
		}

		b = b[space+1:]
		end := bytes.IndexByte(b, 0)
		if end < 1 || len(b) < end+1+idSize {
			return nil, errTree
		}

		e := entry{name: string(b[:end]), id: hex.EncodeToString(b[end+1 : end+1+idSize]), mode: mode(m)}
		b = b[end+1+idSize:]
		switch e.mode {
		case modeDir, modeFile, modeExec, modeLink, modeSubmodule:
		default:
			// Old versions of git also wrote other permission bits.
			switch e.mode &^ 0o7777 {
			case modeDir:
				e.mode = modeDir
			case modeLink:
				e.mode = modeLink
			case modeFile &^ 0o7777:
				e.mode = modeFile | e.mode&0o111
				if e.mode != modeFile {
					e.mode = modeExec
				}
			default:
				continue
			}
		}

		if plainName(e.name) {
			t.entries = append(t.entries, e)
			t.size += int64(len(e.name)) + 96
		}
	}

	slices.SortFunc(t.entries, func(a, b entry) int { return strings.Compare(a.name, b.name) })
	t.entries = slices.CompactFunc(t.entries, func(a, b entry) bool { return a.name == b.name })
	return t, nil
}

// plainName reports whether a name in a tree is safe as a file name.
func plainName(n string) bool {
	return n != "" && n != "." && n != ".." && len(n) <= maxName && !strings.ContainsAny(n, "/\x00") &&
		!strings.EqualFold(n, ".git") && utf8.ValidString(n)
}

// parseCommit returns the id of the tree from the first line of a commit object.
func parseCommit(b []byte) (string, error) {
	line, _, _ := bytes.Cut(b, []byte("\n"))
	id, ok := strings.CutPrefix(string(line), "tree ")
	if !ok || !objectID.MatchString(id) {
		return "", errors.New("a commit object cannot be read")
	}
	return id, nil
}

// parseTagged returns the id of the target from the first line of an annotated tag.
func parseTagged(b []byte) (string, error) {
	line, _, _ := bytes.Cut(b, []byte("\n"))
	id, ok := strings.CutPrefix(string(line), "object ")
	if !ok || !objectID.MatchString(id) {
		return "", errors.New("a tag object cannot be read")
	}
	return id, nil
}

// header is the first line of an answer from `git cat-file --batch`.
type header struct {
	id, kind string
	size     int64
	missing  bool
}

func parseHeader(line string) (h header, err error) {
	line = strings.TrimSuffix(line, "\n")
	f := strings.Split(line, " ")
	if n := len(f); n >= 2 && (f[n-1] == "missing" || f[n-1] == "ambiguous") {
		return header{missing: true}, nil
	}
	if len(f) != 3 || !objectID.MatchString(f[0]) {
		return h, fmt.Errorf("git answers %.80q", line)
	}
	h = header{id: f[0], kind: f[1]}
	if h.size, err = strconv.ParseInt(f[2], 10, 64); err != nil || h.size < 0 {
		return h, fmt.Errorf("git answers %.80q", line)
	}
	return h, nil
}

// namedRef is a ref and its target.
type namedRef struct{ id, name string }

// parseRefs reads lines as `git ls-remote` and `git for-each-ref` write them: an id, a space or
// tab, and the name of a ref. It leaves out names that are not UTF-8 text. It returns an error if
// there are more than maxRefs refs.
func parseRefs(b []byte, maxRefs int) (out []namedRef, err error) {
	for line := range strings.Lines(string(b)) {
		line = strings.TrimSuffix(line, "\n")
		i := strings.IndexAny(line, " \t")
		if i < 0 || !objectID.MatchString(line[:i]) {
			return nil, fmt.Errorf("git lists a ref as %.80q", line)
		}

		name := line[i+1:]
		if !utf8.ValidString(name) || name == "" || len(name) > maxRefName {
			continue
		}

		if out = append(out, namedRef{line[:i], name}); len(out) > maxRefs {
			return nil, tooLarge(fmt.Sprintf(
				"the remote has more than %d branches and tags; narrow them with refspecs", maxRefs))
		}
	}

	return out, nil
}
