package control

import "bytes"

// PingFault is the field of a ping's answer in which a master reports why it cannot store jobs.
// Such an answer also has the field cluster_retry, for readers that do not know PingFault: in that
// field a Salt master of a cluster reports that it cannot serve yet (salt/channel/server.py). The
// load balancer has its own constant for the name PingFault.
const PingFault = "saltern_fault"

// PingTrouble returns the text of PingFault in an answer packed with msgpack, or "" if there is
// none. It serves readers that do not decode the whole answer.
func PingTrouble(answer []byte) string {
	_, rest, ok := bytes.Cut(answer, []byte(PingFault))
	if !ok || len(rest) < 1 {
		return ""
	}

	const fixstr, str8, str16 = 0b101, 0xd9, 0xda
	size, text := 0, rest
	switch {
	case rest[0]>>5 == fixstr:
		size, text = int(rest[0]&0x1f), rest[1:]
	case rest[0] == str8 && len(rest) > 1:
		size, text = int(rest[1]), rest[2:]
	case rest[0] == str16 && len(rest) > 2:
		size, text = int(rest[1])<<8|int(rest[2]), rest[3:]
	}

	return oneLine(string(text[:min(size, len(text))]))
}
