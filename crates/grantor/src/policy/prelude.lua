-- Runs first in every state, before the sandbox is closed and the script comes: takes away what a policy must not have, adds what it may
-- call, and returns the three functions that the engine calls. Layouts are those of wire.rs.

local native, parameters, questions, answers, QUESTION, ANSWER, HEADER, SEED = ...

math.randomseed(SEED)

-- What stays of the standard libraries. Nothing else: what is not on the list has not been looked at. A call that works in C for longer
-- than a moment, and so cannot be interrupted, is either not here or bounded below. Operators cannot be: see the module `policy`.
local KEPT = {
	string = "byte char find format gmatch gsub len lower match rep reverse sub upper split pack packsize unpack",
	table = "concat insert remove sort pack unpack create find clear freeze isfrozen clone",
	math = "abs acos asin atan atan2 ceil clamp cos cosh deg exp floor fmod frexp huge ldexp log log10 max min modf nan "
		.. "noise pi pow rad random round sign sin sinh sqrt tan tanh lerp map isnan isinf isfinite",
	bit32 = "arshift band bnot bor bxor btest extract lrotate lshift replace rrotate rshift countlz countrz byteswap",
	buffer = "create fromstring tostring len readi8 readu8 readi16 readu16 readi32 readu32 readf32 readf64 "
		.. "writei8 writeu8 writei16 writeu16 writei32 writeu32 writef32 writef64 readstring writestring",
	coroutine = "create resume running status wrap yield isyieldable close",
	utf8 = "char codepoint len offset codes charpattern",
}
local GLOBALS = "_G _VERSION assert error getmetatable ipairs next pairs pcall rawequal rawget rawlen rawset select setmetatable "
	.. "tonumber tostring type typeof unpack xpcall"

local globals = _G
local function keep(place, names)
	local kept = {}
	for name in string.gmatch(names, "%S+") do
		kept[name] = true
	end
	local gone = {}
	for name in pairs(place) do
		if not kept[name] then
			table.insert(gone, name)
		end
	end
	for _, name in gone do
		place[name] = nil
	end
end

-- Kept here, for the bounds and for the loop at the end: the script cannot reach these.
local error, type, rawget, rawlen, rawset, select, next = error, type, rawget, rawlen, rawset, select, next
local readstring, readu8, readu16, readu32, readf64 =
	buffer.readstring, buffer.readu8, buffer.readu16, buffer.readu32, buffer.readf64
local writeu8, writeu32, writef64, writestring =
	buffer.writeu8, buffer.writeu32, buffer.writef64, buffer.writestring
local floor = math.floor

local libraries = {}
for library, names in KEPT do
	keep(globals[library], names)
	libraries[library] = true
end
keep(globals, GLOBALS .. " string table math bit32 buffer coroutine utf8")

-- Bounds on what works in C.
local TEXT, PATTERN, LIST = 65536, 256, 65536

local function bound(library, name, check)
	local original = library[name]
	library[name] = function(...)
		check(...)
		return original(...)
	end
end
local function text(s, limit, what)
	if type(s) == "string" and #s > limit then
		error(`{what}: a text of {#s} bytes, at most {limit}`, 4)
	end
end
for _, name in { "find", "match", "gmatch", "gsub" } do
	bound(string, name, function(s, pattern)
		text(s, TEXT, name)
		text(pattern, PATTERN, name)
	end)
end
bound(string, "split", function(s, separator)
	text(s, TEXT, "split")
	text(separator, PATTERN, "split")
end)
-- It takes numbers for texts, and texts for numbers.
bound(string, "rep", function(s, n)
	local many = tonumber(n)
	if (type(s) == "string" or type(s) == "number") and many and not (math.max(#tostring(s), 1) * many <= 1048576) then
		error("rep: more than 1048576 bytes", 3)
	end
end)
-- Comparing is a step each: texts may be long, and lists of them too.
local sort = table.sort
local function less(a, b)
	return a < b
end
table.sort = function(list, before)
	return sort(list, if before == nil then less else before)
end

for _, name in { "sort", "insert", "remove", "concat", "find", "clone" } do
	bound(table, name, function(list)
		if type(list) == "table" and rawlen(list) > LIST then
			error(`{name}: a list of more than {LIST}`, 3)
		end
	end)
end

-- What a script may call while it loads.
local loading = true
local function only_loading(what)
	if not loading then
		error(`{what}: only while the script loads`, 3)
	end
end

local asked = {}
function globals.parameter(name, default, least, most)
	only_loading("parameter")
	if type(name) ~= "string" then
		error("parameter: a name comes first", 2)
	end
	asked[name] = true
	if least ~= nil or most ~= nil then
		if type(least) ~= "number" or type(most) ~= "number" then
			error(`parameter "{name}": a range is two numbers`, 2)
		end
		if type(default) == "number" and not (default >= least and default <= most) then
			error(`parameter "{name}": its default is {default}: give {least} to {most}`, 2)
		end
	end
	local value = parameters[name]
	if value == nil then
		if default == nil then
			error(`parameter "{name}" is missing`, 2)
		end
		return default
	end
	if default ~= nil and type(value) ~= type(default) then
		error(`parameter "{name}" is a {type(value)}: give a {type(default)}`, 2)
	end
	if least and type(value) == "number" and not (value >= least and value <= most) then
		error(`parameter "{name}" = {value}: give {least} to {most}`, 2)
	end
	return value
end

function globals.lpm(file, column)
	only_loading("lpm")
	if type(file) ~= "string" or (column ~= nil and type(column) ~= "string") then
		error("lpm: give a file's name, and a column's", 2)
	end
	local made, what = native.lpm(file, column)
	if not made then
		error(what, 2)
	end
	return made
end

-- What may be given to a call by name: anything else is a mistake, and would be without effect.
local function options(names)
	local known = {}
	for name in string.gmatch(names, "%S+") do
		known[name] = true
	end
	return known
end
local function only(known, of, what)
	for name in next, of do
		if type(name) ~= "string" then
			error(`{what}: give options by name`, 3)
		elseif not known[name] then
			error(`{what} has no option {name}`, 3)
		end
	end
end

local EXPIRING = options("entries idle keep")
function globals.expiring(of)
	only_loading("expiring")
	if type(of) ~= "table" or type(of.entries) ~= "number" or type(of.idle) ~= "number" then
		error("expiring: give { entries = NUMBER, idle = SECONDS }", 2)
	end
	only(EXPIRING, of, "expiring")
	if of.keep ~= nil and type(of.keep) ~= "string" then
		error("expiring: keep: give a name", 2)
	end
	local made, what = native.expiring(of.entries, of.idle, of.keep)
	if not made then
		error(what, 2)
	end
	return made
end

function globals.signature(...)
	only_loading("signature")
	for i = 1, select("#", ...) do
		local name = select(i, ...)
		if type(name) ~= "string" or not native.signature(name) then
			error("signature: no field of that name", 2)
		end
	end
end

-- What a question has: a value under such a name would take its place.
local taken = options("source destination dscp protocol source_port destination_port tcp_flags fragment length packets bytes now")
local names = {}
function globals.field(name, of, what)
	only_loading("field")
	if type(name) ~= "string" or (what ~= "source" and what ~= "destination") then
		error('field: give a name, a table of lpm(), and "source" or "destination"', 2)
	end
	if taken[name] then
		error(`field: a question has a {name} already: give another name`, 2)
	end
	local wrong = native.field(of, what)
	if wrong then
		error(wrong, 2)
	end
	taken[name] = true
	table.insert(names, name)
end

globals.ip = { address = native.address, text = native.text, mask = native.mask }
function globals.program_of(name, of)
	-- Its copy is not in the script's memory.
	if type(name) ~= "string" or #name > 64 or type(of) ~= "table" then
		error("program_of: give a program's name and its parameters", 2)
	end
	local index, cookie = native.cookie(name, of)
	if not index then
		error(cookie, 2)
	end
	return index, cookie
end

-- Answers. They are plain tables: what is in them is looked at when they come back.
local function number(of, key, default, what)
	local value = of[key]
	if value == nil then
		value = default
	end
	if type(value) ~= "number" then
		error(`{what}: {key} is a {type(value)}: give a number`, 3)
	end
	return value
end

local GRANTED = options("rate expire renew step direct forward")
function globals.granted(of)
	if type(of) ~= "table" then
		error("granted: give { rate = KIB_PER_SECOND, expire = SECONDS }", 2)
	end
	only(GRANTED, of, "granted")
	if of.direct ~= nil and type(of.direct) ~= "boolean" then
		error("granted: direct: give true or false", 2)
	end
	local expire = number(of, "expire", 60, "granted")
	return {
		kind = "granted",
		forward = of.forward ~= false,
		direct = of.direct == true,
		a = number(of, "rate", nil, "granted"),
		b = expire,
		c = number(of, "renew", floor(expire * 750), "granted"),
		d = number(of, "step", 1000, "granted"),
	}
end

local DECLINED = options("expire forward")
function globals.declined(of)
	if type(of) ~= "table" then
		error("declined: give { expire = SECONDS }", 2)
	end
	only(DECLINED, of, "declined")
	return { kind = "declined", forward = of.forward == true, a = number(of, "expire", 60, "declined") }
end

local UNDECIDED = options("forward")
function globals.undecided(of)
	if type(of) == "table" then
		only(UNDECIDED, of, "undecided")
	end
	return { kind = "none", forward = type(of) == "table" and of.forward == true }
end

local PROGRAM = options("index expire cookie forward")
function globals.program(of)
	if type(of) ~= "table" then
		error("program: give { index = NUMBER, expire = SECONDS, cookie = BYTES }", 2)
	end
	only(PROGRAM, of, "program")
	local cookie = of.cookie
	if cookie == nil then
		cookie = ""
	end
	if type(cookie) ~= "string" then
		error("program: cookie is no text of bytes", 2)
	end
	return {
		kind = "program",
		forward = of.forward ~= false,
		a = number(of, "expire", 60, "program"),
		b = number(of, "index", nil, "program"),
		cookie = cookie,
	}
end

-- Marks that a wrong answer leaves instead of a kind: see wire.rs.
local NO_TABLE, NO_KIND, NO_FORWARD, NO_NUMBER, NO_COOKIE, NO_DIRECT = 200, 201, 202, 203, 204, 205

local function put(answer, at)
	if type(answer) ~= "table" then
		return writeu8(answers, at, NO_TABLE)
	end
	local kind, forward = rawget(answer, "kind"), rawget(answer, "forward")
	if type(forward) ~= "boolean" then
		return writeu8(answers, at, NO_FORWARD)
	end
	local code, numbers
	if kind == "granted" then
		code, numbers = 3, 4
		local direct = rawget(answer, "direct")
		if direct ~= nil and type(direct) ~= "boolean" then
			return writeu8(answers, at, NO_DIRECT)
		end
		writeu8(answers, at + 3, if direct then 1 else 0)
	elseif kind == "declined" then
		code, numbers = 2, 1
	elseif kind == "program" then
		code, numbers = 4, 2
		local cookie = rawget(answer, "cookie")
		if type(cookie) ~= "string" or #cookie > 64 then
			return writeu8(answers, at, NO_COOKIE)
		end
		writeu8(answers, at + 2, #cookie)
		writestring(answers, at + 40, cookie)
	elseif kind == "none" then
		code, numbers = 1, 0
	else
		return writeu8(answers, at, NO_KIND)
	end
	if numbers > 0 then
		local a = rawget(answer, "a")
		if type(a) ~= "number" then
			return writeu8(answers, at, NO_NUMBER)
		end
		writef64(answers, at + 8, a)
	end
	if numbers > 1 then
		local b = rawget(answer, "b")
		if type(b) ~= "number" then
			return writeu8(answers, at, NO_NUMBER)
		end
		writef64(answers, at + 16, b)
	end
	if numbers > 2 then
		local c, d = rawget(answer, "c"), rawget(answer, "d")
		if type(c) ~= "number" or type(d) ~= "number" then
			return writeu8(answers, at, NO_NUMBER)
		end
		writef64(answers, at + 24, c)
		writef64(answers, at + 32, d)
	end
	writeu8(answers, at + 1, if forward then 1 else 0)
	return writeu8(answers, at, code)
end

local decide

-- Takes what the script has defined. Returns what is wrong, or nothing.
local function loaded(defined)
	loading = false
	decide = defined
	for name in parameters do
		if not asked[name] then
			local known = {}
			for name in asked do
				table.insert(known, name)
			end
			if #known == 0 then
				return `does not know parameter "{name}": it has none`
			end
			table.sort(known)
			return `does not know parameter "{name}"; it knows {table.concat(known, ", ")}`
		end
	end
	return nil
end

-- Asks for the questions from `first` to `last` (from 0) one by one. The header says at which it is, so that the engine knows whose call
-- failed, and can go on behind it.
local function run(first, last, now)
	for i = first, last do
		writeu32(answers, 0, i)
		local at = i * QUESTION
		local width = readu8(questions, at + 32)
		local q = {
			source = readstring(questions, at, width),
			destination = readstring(questions, at + 16, width),
			protocol = readu8(questions, at + 33),
			dscp = readu8(questions, at + 34),
			fragment = readu8(questions, at + 35),
			tcp_flags = readu8(questions, at + 36),
			source_port = readu16(questions, at + 38),
			destination_port = readu16(questions, at + 40),
			length = readu16(questions, at + 42),
			packets = readu32(questions, at + 44),
			bytes = readf64(questions, at + 48),
			now = now,
		}
		for f = 1, #names do
			local value = readf64(questions, at + 48 + f * 8)
			if value >= 0 then
				q[names[f]] = value
			end
		end
		put(decide(q), HEADER + i * ANSWER)
	end
end

return run, loaded
