package diff

import (
	"errors"
	"fmt"

	"saltern/master/internal/fileserver/regular"
)

// reasons returns why files are refused.
func (m *minionSearch) reasons() (reasons []string) {
	for _, r := range m.origins.Refused {
		reasons = append(reasons, r.Reason)
	}
	return reasons
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
