package diff

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"saltern/master/internal/fileserver/regular"
	"saltern/master/internal/pillar"
)

// computed are the beginnings of reasons that name something which the template may have computed, such as
// from a secret.
var computed = []string{"calls ", "asks ", "is given ", "uses "}

// aroundNames are the words that stand around such a name.
const aroundNames = "for the key that Salt also reads as YAML of another module than Salt's with arguments that are " +
	"not known a no text by an include grains pillar whole filter test function"

// reasons returns why files are refused. A name in a reason is shown if the text of the file has it.
func (m *minionSearch) reasons() (reasons []string) {
	around := strings.Fields(aroundNames)
	for _, r := range m.origins.Refused {
		shown := r.Reason
		for _, verb := range computed {
			rest, begins := strings.CutPrefix(r.Reason, verb)
			if !begins {
				continue
			}
			text := m.textOf(r.FileKey)
			isUnknown := func(word string) bool { return !slices.Contains(around, word) && !strings.Contains(text, word) }
			if slices.ContainsFunc(strings.Fields(rest), isUnknown) {
				shown = verb + "what the template computes"
			}
		}
		reasons = append(reasons, shown)
	}
	return reasons
}

// textOf returns the text of a file of the minion's pillar, or "" if it cannot be read.
func (m *minionSearch) textOf(key pillar.FileKey) string {
	for _, f := range m.origins.Files {
		if f.FileKey == key && f.Path != "" {
			text, _ := readText(f.Path) // without a text no name is shown
			return text
		}
	}
	return ""
}

// messagesIn returns the PGP messages of a file, packed: that of a number, or all if the number is 0.
func messagesIn(path string, number int) (blocks []string, err error) {
	text, err := readText(path)
	if err != nil {
		return nil, err
	}

	all := pgpMessage.FindAllString(text, -1)
	if number > len(all) || len(all) == 0 {
		return nil, fmt.Errorf("it has %d PGP messages", len(all))
	}
	if number > 0 {
		all = all[number-1 : number]
	}
	for _, block := range all {
		blocks = append(blocks, pack(block))
	}
	return blocks, nil
}

// readText returns the text of a file that is not too large.
func readText(path string) (string, error) {
	file, info, err := regular.Open(path)
	if err != nil {
		return "", err
	}
	defer file.Close()
	const maxFile = 8 << 20
	if info.Size() > maxFile {
		return "", errors.New("the file is too large")
	}
	text := make([]byte, info.Size())
	if _, err := file.ReadAt(text, 0); err != nil {
		return "", err
	}
	return string(text), nil
}
