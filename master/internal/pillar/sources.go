package pillar

import (
	"crypto/sha256"
	"path/filepath"
	"regexp"
	"sync"
)

// Bounds of what sourceSums follows and keeps.
const (
	maxImportDepth = 10
	maxSourceSums  = 10000
)

// importTag matches a Jinja tag that imports a file, with the file's name if it is written out.
var importTag = regexp.MustCompile(`\{%[-+]?\s*(?:import_\w+|import|from|include|extends)\s+(?:"([^"{}]*)"|'([^'{}]*)')?`)

// sourceSums knows digests of files with what they import, for files that cannot be rendered: as long
// as the digest is the same, the file gives the same. It is safe for concurrent use.
type sourceSums struct {
	mu    sync.Mutex
	known map[string][sha256.Size]byte
}

// sumOf returns the digest of a file and of what it imports from an environment. The digest of a
// file that imports a file by a computed name holds for this path alone.
func (s *sourceSums) sumOf(f *files, env environment, path string) [sha256.Size]byte {
	s.mu.Lock()
	sum, known := s.known[path]
	s.mu.Unlock()
	if known {
		return sum
	}

	sum = digestOf(f, env, path, 0)
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.known == nil || len(s.known) >= maxSourceSums {
		s.known = map[string][sha256.Size]byte{}
	}
	s.known[path] = sum
	return sum
}

func digestOf(f *files, env environment, path string, depth int) [sha256.Size]byte {
	text, _, _, err := f.loadFile(path)
	if err != nil || depth > maxImportDepth {
		return sha256.Sum256([]byte(path))
	}

	h := sha256.New()
	h.Write(text)
	for _, tag := range importTag.FindAllSubmatch(text, -1) {
		name := string(tag[1]) + string(tag[2])
		if name == "" {
			h.Write([]byte(path))
			continue
		}
		if beside := filepath.Join(filepath.Dir(path), name); filepath.IsLocal(name) || name[0] == '.' {
			h.Write(sumIfThere(f, env, beside, depth))
		}
		if found, err := findFile(env, name); err == nil && found != "" {
			h.Write(sumIfThere(f, env, found, depth))
		}
	}
	return [sha256.Size]byte(h.Sum(nil))
}

// sumIfThere returns the digest of a file below a directory of the environment, or nothing if there
// is none.
func sumIfThere(f *files, env environment, path string, depth int) []byte {
	for _, dir := range env.dirs {
		rel, err := filepath.Rel(dir, path)
		if err != nil || !filepath.IsLocal(rel) {
			continue
		}
		if found, err := findFile(environment{env.name, []string{dir}}, rel); err == nil && found != "" {
			sum := digestOf(f, env, found, depth+1)
			return sum[:]
		}
	}
	return nil
}
