package runner

import (
	"fmt"
	"slices"
	"strings"

	"saltern/master/value"
)

// TextArgument returns an argument that names something, such as a minion, a branch or a key. It
// refuses what is no text: YAML has made the number 1.1 of the name 1.10, and what is named 1.1 is
// something else. nil is no argument, which is "".
func TextArgument(name string, v any) (string, error) {
	switch v := v.(type) {
	case nil:
		return "", nil
	case string:
		return v, nil
	case []byte:
		return string(v), nil
	}
	return "", fmt.Errorf(
		"%s has to be a text, and %s is none: write it in quotes, on a command line in two kinds of them, such as \"'1.10'\"",
		name, value.StrMax(v, 40))
}

// textParameters are the parameters of the functions that Salt does not have which name something.
var textParameters = strings.Fields("after action env expression file finger folder from fun function id into jid key kind " +
	"minion minions name pillarenv ref remote rule saltenv state text tgt user")

// IsText returns a function that reports whether an argument of a function names something, so that a
// command line takes it as it was typed. The argument is that at a position, or of a name if the position is
// negative. The functions that Salt has parse theirs as Salt does.
func IsText(fun string) func(position int, name string) bool {
	added, known := addedByMaster[fun]
	if !known {
		added = addedByCluster[fun]
	}
	parameters := strings.Fields(added.params)

	return func(position int, name string) bool {
		if position >= len(parameters) {
			return false
		}
		if position >= 0 {
			name = parameters[position]
		}
		name = strings.TrimSuffix(name, "=")
		isParameter := slices.Contains(parameters, name) || slices.Contains(parameters, name+"=")
		return isParameter && slices.Contains(textParameters, name)
	}
}
