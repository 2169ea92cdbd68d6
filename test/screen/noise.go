package screen

import (
	"math/rand/v2"
	"strings"
)

// Reports are what terminals send that is no key: answers, and events that nobody asked
// for here.
var Reports = []string{
	"\x1b[I", "\x1b[O", // focus
	// mouse: SGR, X10, UTF-8, urxvt
	"\x1b[<0;33;12M", "\x1b[<0;33;12m", "\x1b[M !!", "\x1b[MC\xc3\x9b\xc3\x9c", "\x1b[0;33;12M",
	"\x1b[?62;1;6;22c", "\x1b[>41;354;0c", "\x1bP!|00000000\x1b\\", // device attributes
	"\x1b[12;40R", "\x1b[0n", "\x1b[?2026;2$y", "\x1b[8;24;80t", // reports
	// OSC
	"\x1b]11;rgb:ffff/ffff/ffff\x07", "\x1b]11;rgb:0000/0000/0000\x1b\\", "\x1b]52;c;c2VjcmV0\x1b\\", "\x9d11;x\x9c",
	"\x1bP1+r544e=787465726d\x1b\\", "\x1bP>|XTerm(354)\x1b\\", // DCS
	"\x1b_Gi=1;OK\x1b\\", "\x1b^private\x1b\\", "\x1bXstring\x1b\\", // APC, PM, SOS
	"\x1b[?1u", "\x1b[?31u", "\x1b[57444u", "\x1b[97;1:3u", "\x1b[1;1:3A", // kitty
	"\x1b[25~", "\x1b[99~", "\x1b[1;99A", "\x1b[11^", "\x1b[a", "\x1bOa", "\x1bN!", // rxvt and others
	"\x1b[[Z", "\x1b[[q", "\x1b(B", "\x1b#8", "\x1b%G", // Linux, designations
	"\x1b[" + strings.Repeat("1;", 500) + "A", "\x1b]" + strings.Repeat("long", 1000) + "\x07",
}

// between is every character from one to another.
func between(from, to byte) string {
	var b strings.Builder
	for c := from; c <= to; c++ {
		b.WriteByte(c)
	}
	return b.String()
}

// The bytes of ECMA-48 5.4, and what a control string holds (5.6).
var (
	intermediates = between(' ', '/')
	parameters    = between('0', '?')
	finals        = between('@', '~')
	texts         = between(' ', '~')
)

// Noise makes up a sequence by the grammar of ECMA-48 that stands for no key.
func Noise(r *rand.Rand) string {
	some := func(set string, least, most int) string {
		var b strings.Builder
		for range least + r.IntN(most-least+1) {
			b.WriteByte(set[r.IntN(len(set))])
		}
		return b.String()
	}

	either := func(a, b string) string {
		if r.IntN(2) == 0 {
			return a
		}
		return b
	}

	switch r.IntN(5) {
	case 0:
		return Reports[r.IntN(len(Reports))]
	case 1: // private parameters
		return either("\x1b[", "\x9b") + some("<=>?", 1, 1) + some(parameters, 0, 12) + some(finals, 1, 1)
	case 2: // intermediate bytes
		return either("\x1b[", "\x9b") + some("0123456789;", 0, 8) + some(intermediates, 1, 3) + some(finals, 1, 1)
	case 3: // control strings
		return "\x1b" + some("P]_^X", 1, 1) + some(texts, 0, 60) + either("\x1b\\", "\x9c")
	}

	return "\x1b" + some(intermediates, 1, 3) + some(between('0', '~'), 1, 1)
}
