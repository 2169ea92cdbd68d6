package diff

import (
	"context"
	"maps"
	"slices"
	"strconv"
	"strings"

	"go.yaml.in/yaml/v3"
)

// Bounds of the files whose lines are looked up.
const (
	maxLineFile  = 2 << 20  // bytes of one file
	maxLineFiles = 32 << 20 // bytes of all files of one report
)

// fileLines are the lines of keys in a file.
type fileLines struct {
	paths map[string][]string // the paths that are looked up, by their joined form
	found map[string]int      // 0: the line is not known
	fault string              // why no line was looked up
}

// joined returns a path as the key of a map.
func joined(path []string) string { return strings.Join(path, "\x00") }

// findLines returns the lines of the keys of groups, by the paths of their files. It reads each file once.
func findLines(ctx context.Context, groups []*readersGroup) map[string]*fileLines {
	files := map[string]*fileLines{}
	for _, g := range groups {
		for _, s := range g.Sources {
			if files[s.File] == nil {
				files[s.File] = &fileLines{paths: map[string][]string{}, found: map[string]int{}}
			}
			if len(s.keyPath) > 0 {
				files[s.File].paths[joined(s.keyPath)] = s.keyPath
			}
		}
	}

	bytes := 0
	for _, path := range slices.Sorted(maps.Keys(files)) {
		lines := files[path]
		if path == "" || len(lines.paths) == 0 {
			continue
		}
		if ctx.Err() != nil {
			lines.fault = "the line was not looked up: no time left"
			continue
		}

		text, _ := readText(path) // without a text no line is known
		bytes += len(text)
		if len(text) > maxLineFile || bytes > maxLineFiles {
			lines.fault = "the line was not looked up: the files are too large"
			bytes -= len(text)
			continue
		}
		lines.find(ctx, text)
	}
	return files
}

// find finds the lines of all paths in the text of a file.
func (l *fileLines) find(ctx context.Context, text string) {
	isTemplate := strings.Contains(text, "{%") || strings.Contains(text, "{{")
	begin := lineInYAML
	if isTemplate {
		begin = lineInTemplate
	}
	lineOf := begin(text)
	for key, path := range l.paths {
		if ctx.Err() != nil {
			l.fault = "the line was not looked up: no time left"
			return
		}
		l.found[key] = lineOf(path)
	}
}

// lineInTemplate returns a function that returns the number of the line of a template that has a key. It
// returns 0 if that is not known: a template may make keys in a loop, and have a key twice.
func lineInTemplate(text string) func(path []string) int {
	lines := strings.Split(text, "\n")
	return func(path []string) int {
		found := 0
		for i, line := range lines {
			if !beginsWithKey(line, path[len(path)-1]) {
				continue
			}
			if found > 0 {
				return 0
			}
			found = i + 1
		}
		return found
	}
}

// beginsWithKey reports whether a line begins with a key, which may be in quotes.
func beginsWithKey(line, name string) bool {
	rest := strings.TrimLeft(line, " \t")
	for _, quote := range []string{"", `"`, "'"} {
		if after, ok := strings.CutPrefix(rest, quote+name+quote); ok {
			return strings.HasPrefix(strings.TrimLeft(after, " \t"), ":")
		}
	}
	return false
}

// lineInYAML returns a function that returns the line of a key of plain YAML, or 0. What an include has put the
// file below is not a part of the file's own path.
func lineInYAML(text string) func(path []string) int {
	var document yaml.Node
	if err := yaml.Unmarshal([]byte(text), &document); err != nil || len(document.Content) == 0 {
		return func([]string) int { return 0 }
	}
	return func(path []string) int { return lineInDocument(&document, path) }
}

func lineInDocument(document *yaml.Node, path []string) int {
	for i := range path {
		if _, err := strconv.Atoi(path[i]); i > 0 && err == nil {
			break // below an index of a list, a key of the same name may be another one
		}
		if line := lineBelow(document.Content[0], path[i:]); line > 0 {
			return line
		}
	}
	return 0
}

func lineBelow(node *yaml.Node, path []string) int {
	if node.Kind == yaml.AliasNode {
		node = node.Alias
	}
	if node.Kind == yaml.SequenceNode {
		return lineInList(node, path)
	}
	if node.Kind != yaml.MappingNode {
		return 0
	}
	for i := 0; i+1 < len(node.Content); i += 2 {
		if node.Content[i].Value != path[0] {
			continue
		}
		if len(path) == 1 {
			return node.Content[i].Line
		}
		return lineBelow(node.Content[i+1], path[1:])
	}
	return 0
}

// lineInList returns the line of a key in a list, whose index is the first part of the path.
func lineInList(node *yaml.Node, path []string) int {
	index, err := strconv.Atoi(path[0])
	if err != nil || index < 0 || index >= len(node.Content) {
		return 0
	}
	if len(path) == 1 {
		return node.Content[index].Line
	}
	return lineBelow(node.Content[index], path[1:])
}
