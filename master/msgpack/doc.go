// Package msgpack is Saltern's codec for untrusted MessagePack.
//
// Almost all input of a Salt master is MessagePack that other programs wrote: requests before
// sign-in, files in a cache, frames on the event bus. Decode therefore checks every length against
// the remaining bytes before it allocates, and bounds depth and the number of values, so that a
// message of n bytes costs O(n) memory.
//
// Decoded values have the types of package value.
//
// Salt writes two dialects. On ZeroMQ and inside AES blobs it packs without bin types and without
// str8 (Python's use_bin_type=False), so text and bytes have the same "raw" types: Decode returns a
// raw that is valid UTF-8 as string, and any other raw as []byte. Events, caches and the job cache
// use the modern dialect. Mode selects the dialect to write; Decode reads both.
//
// The package holds no state; all functions may be called concurrently.
package msgpack
