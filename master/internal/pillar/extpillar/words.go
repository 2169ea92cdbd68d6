package extpillar

import "strings"

// splitWords splits a command line as Python's shlex.split does, by the rules of a POSIX shell without
// comments. It returns false if a quote is not closed or a backslash is the last character.
func splitWords(line string) (words []string, ok bool) {
	const space = " \t\r\n"
	var word strings.Builder
	inWord := false
	var quote byte
	for i := 0; i < len(line); i++ {
		c := line[i]
		switch {
		case quote != 0 && c == quote:
			quote = 0
		case c == '\\' && quote != '\'':
			i++
			if i == len(line) {
				return nil, false
			}
			if quote == '"' && line[i] != '"' && line[i] != '\\' {
				word.WriteByte(c)
			}
			word.WriteByte(line[i])
			inWord = true
		case quote != 0:
			word.WriteByte(c)
		case c == '\'' || c == '"':
			quote = c
			inWord = true
		case strings.IndexByte(space, c) < 0:
			word.WriteByte(c)
			inWord = true
		case inWord:
			words = append(words, word.String())
			word.Reset()
			inWord = false
		}
	}

	if quote != 0 {
		return nil, false
	}
	if inWord {
		words = append(words, word.String())
	}
	return words, true
}
