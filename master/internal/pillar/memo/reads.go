package memo

import (
	"crypto/sha256"
	"errors"
	"fmt"

	"saltern/master/internal/pyframe"
	"saltern/master/value"
)

// Sum is a SHA-256 hash.
type Sum [sha256.Size]byte

// Read identifies one value that a template read. Path is a path in the pillar if Pillar is set,
// otherwise in the grains.
type Read struct {
	Pillar bool
	Path   []string
}

// File is a file that a template imported, or would have imported if the file existed.
type File struct {
	Path    string
	Sum     Sum // hash of the file's content
	Missing bool
}

// Trace lists everything on which a result depends.
type Trace struct {
	Sum   Sum // hash of the text of the SLS
	Reads []Read
	Files []File
}

// Minion holds the grains and pillar that templates see.
type Minion struct{ Grains, Pillar *value.Map }

// maxReads bounds the number of reads in a trace. The renderer has the same bound.
const maxReads = 1000

var errTrace = errors.New("the renderer says in no known form what a template read")

// ReadTrace parses the renderer's report about one rendering.
func ReadTrace(reply *value.Map) (t Trace, err error) {
	if t.Sum, err = readSum(reply.Value("sum")); err != nil {
		return t, err
	}

	reads, files := reply.List("reads"), reply.List("files")
	if len(reads) > maxReads || len(files) > maxReads {
		return t, errTrace
	}

	for _, r := range reads {
		list, _ := r.([]any)
		if len(list) < 2 || list[0] != "grains" && list[0] != "pillar" {
			return t, errTrace
		}

		read := Read{Pillar: list[0] == "pillar"}
		for _, part := range list[1:] {
			text, ok := part.(string)
			if !ok {
				return t, errTrace
			}
			read.Path = append(read.Path, text)
		}

		t.Reads = append(t.Reads, read)
	}

	for _, f := range files {
		pair, _ := f.([]any)
		if len(pair) != 2 {
			return t, errTrace
		}

		file := File{Missing: pair[1] == nil}
		var ok bool
		if file.Path, ok = pair[0].(string); !ok {
			return t, errTrace
		}

		if !file.Missing {
			if file.Sum, err = readSum(pair[1]); err != nil {
				return t, err
			}
		}

		t.Files = append(t.Files, file)
	}

	return t, nil
}

func readSum(v any) (sum Sum, err error) {
	b, ok := v.([]byte)
	if !ok || len(b) != len(sum) {
		return sum, errTrace
	}
	return Sum(b), nil
}

// KeyOf returns the hash of a template's inputs. It depends on their order and types.
func KeyOf(parts ...any) (Sum, error) {
	b, err := pyframe.Pack(parts)
	if err != nil {
		return Sum{}, fmt.Errorf("pack what a template is given: %w", err)
	}
	return sha256.Sum256(b), nil
}

// sumOf returns a hash over the paths in reads. For each path it covers how many parts of the path
// exist, and the value at that path, packed as for the renderer.
func (m Minion) sumOf(reads []Read) (Sum, error) {
	found := make([]any, 0, len(reads))
	for _, r := range reads {
		from := m.Grains
		if r.Pillar {
			from = m.Pillar
		}
		depth, v, there := followPath(from, r.Path)
		found = append(found, []any{int64(depth), there, v})
	}

	b, err := pyframe.Pack(found)
	if err != nil {
		return Sum{}, fmt.Errorf("pack what a template read: %w", err)
	}

	return sha256.Sum256(b), nil
}

// followPath follows a path through nested maps. depth is how many parts of the path exist. If
// followPath reaches a value that is not a map, it returns that value. If a key is missing, found
// is false.
func followPath(m *value.Map, path []string) (depth int, v any, found bool) {
	v = m
	if m == nil {
		v = value.NewMap()
	}

	for i, key := range path {
		m, ok := v.(*value.Map)
		if !ok {
			return i, v, true
		}
		if v, ok = m.Get(key); !ok {
			return i, nil, false
		}
	}

	return len(path), v, true
}
