package diff

import (
	"strconv"
	"strings"

	"go.yaml.in/yaml/v3"
)

// lineOf returns the number of the line of a file that has a key. It returns 0 if that is not known: a
// template may make keys in a loop, and have a key twice.
func lineOf(text string, path []string) int {
	if isTemplate := strings.Contains(text, "{%") || strings.Contains(text, "{{"); !isTemplate {
		return lineOfYAML(text, path)
	}

	name := path[len(path)-1]
	found := 0
	number := 0
	for line := range strings.Lines(text) {
		number++
		if !beginsWithKey(line, name) {
			continue
		}
		if found > 0 {
			return 0
		}
		found = number
	}
	return found
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

// lineOfYAML returns the line of a key of plain YAML. What an include has put the file below is not a part
// of the file's own path.
func lineOfYAML(text string, path []string) int {
	var document yaml.Node
	if err := yaml.Unmarshal([]byte(text), &document); err != nil || len(document.Content) == 0 {
		return 0
	}
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
