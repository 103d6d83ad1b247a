"""Servers of an office and a town, for whole runs: `office.py archive=8001 depot=8002 …`, each on a port of its own.

One process, so that many runs share it; what they change are things of different names.
"""

import asyncio
import sys
from typing import Any

from mcp.server.fastmcp import FastMCP

_documents: dict[str, str] = {}
_printers: dict[str, str] = {"north": "np-1", "south": "sp-1"}
_flights = {"LH454": "B12", "LH760": "C03", "IB311": "A07"}
_stock = {"tea": 17, "coffee": 40, "paper": 260, "lamps": 9}
_slow_seconds = 0.1
_doctors = {"Lind", "Okafor"}
_withdrawn: dict[str, str] = {}  # parts of the garage, and what takes their place
_parts = ("BP-100", "BP-200", "OF-20", "WB-5")
_marks: dict[str, str] = {}
_berths: dict[int, str] = {7: "", 9: "Borealis"}
_trains = {"ICE 71": 4, "RE 5": 11}
_prices = {"peras": 3, "higos": 6}


def archive(server: FastMCP) -> None:
    """Documents, which are written, read and deleted."""

    @server.tool()
    async def read_document(name: str) -> str:
        """Read a document of the archive."""
        if name.startswith("guide"):
            return f"{name}: 0 errors were found in 12 chapters."
        if name not in _documents:
            raise ValueError(f"there is no document {name} in the archive")
        return f"{name}: {_documents[name]}"

    @server.tool()
    async def write_document(name: str, text: str) -> str:
        """Write a document into the archive."""
        _documents[name] = text
        return f"{name} is written, {len(text)} characters"

    @server.tool()
    async def delete_document(name: str) -> str:
        """Delete a document from the archive."""
        _documents.pop(name, None)
        return f"{name} is deleted"

    @server.tool()
    async def search(words: str) -> str:
        """Search the archive; it takes its time."""
        await asyncio.sleep(_slow_seconds)
        return f"3 documents have the words {words}: guide-1, guide-2, guide-3"


def depot(server: FastMCP) -> None:
    """Goods and the sensors of the rooms that they are in."""

    @server.tool()
    async def stock(item: str) -> str:
        """Say how many of an item there are."""
        if item not in _stock:
            raise ValueError(f"the depot has no item {item}")
        return f"there are {_stock[item]} boxes of {item}"

    @server.tool()
    async def reserve(item: str, boxes: int) -> str:
        """Reserve boxes of an item."""
        if boxes > _stock.get(item, 0):
            raise ValueError(f"{boxes} boxes of {item} can't be reserved: there are {_stock.get(item, 0)}")
        return f"{boxes} boxes of {item} are reserved"

    @server.tool()
    async def temperature(room: str) -> str:
        """Measure the temperature of a room, in degrees Celsius."""
        if room in ("cellar", "attic"):
            raise RuntimeError(f"the sensor in the {room} doesn't answer: no reading for 9 hours")
        return f"the {room} has 19 degrees"


def travel(server: FastMCP) -> None:
    """Flights and their gates."""

    @server.tool()
    async def gate(flight: str) -> str:
        """Say at which gate a flight is boarded."""
        if flight not in _flights:
            raise ValueError(f"there is no flight {flight} today")
        return f"flight {flight} is boarded at gate {_flights[flight]}"

    @server.tool()
    async def book(flight: str, seats: int) -> str:
        """Book seats on a flight."""
        return f"{seats} seats on flight {flight} are booked"


def printing(server: FastMCP) -> None:
    """Printers, which are replaced now and then."""

    @server.tool()
    async def print_pages(printer: str, document: str) -> str:
        """Print a document on a printer, which is named by its id."""
        if printer not in _printers.values():
            raise ValueError(f"there is no printer {printer}: it was taken away")
        return f"{document} is printed on {printer}"

    @server.tool()
    async def replace_printer(place: str, printer: str) -> str:
        """Replace the printer of a place by another one."""
        _printers[place] = printer
        return f"the printer {printer} stands in the {place} now"


def clinic(server: FastMCP) -> None:
    """Patients, doctors' hours and what the laboratory has measured."""

    @server.tool()
    async def find_patient(number: int) -> str:
        """Find a patient by number."""
        if number % 2:
            raise ValueError(f"no patient has the number {number}")
        return f"patient {number}: Omar Haddad, room 12"

    @server.tool()
    async def book_hour(doctor: str, hour: str) -> str:
        """Book an hour with a doctor."""
        if doctor not in _doctors:
            raise ValueError(f"Dr {doctor} doesn't work here: choose one of {', '.join(sorted(_doctors))}")
        return f"{hour} with Dr {doctor} is booked"

    @server.tool()
    async def lab_values(sample: str) -> dict[str, Any]:
        """Return what was measured of a sample."""
        if sample == "S-14":
            return {"status": "error", "message": f"the analyser is out of reagent: {sample} was not measured"}
        return {"status": "ok", "sample": sample, "glucose": 5.1, "errors": 0, "failed": []}


def garage(server: FastMCP) -> None:
    """Vehicles and their parts, which are withdrawn now and then."""

    @server.tool()
    async def inspect_part(vehicle: str, part: str) -> str:
        """Inspect a part of a vehicle."""
        return f"{part} of {vehicle}: inspection failed, 2 defects"

    @server.tool()
    async def order_part(number: str, pieces: int) -> str:
        """Order pieces of a part."""
        if number in _withdrawn:
            raise ValueError(f"{number} is no longer made: {_withdrawn[number]} takes its place")
        if number not in _parts:
            raise ValueError(f"the catalogue has no part {number}")
        return f"{pieces} pieces of {number} are ordered"

    @server.tool()
    async def withdraw_part(number: str, successor: str) -> str:
        """Take a part out of the catalogue."""
        _withdrawn[number] = successor
        return f"{number} is withdrawn, {successor} takes its place"


def school(server: FastMCP) -> None:
    """Lessons, marks and reports."""

    @server.tool()
    async def timetable(class_name: str) -> str:
        """Say which lessons a class has."""
        return f"{class_name}: Monday 08:00 physics, 09:00 music, 10:00 sports"

    @server.tool()
    async def enter_mark(pupil: str, subject: str, mark: int) -> str:
        """Enter the mark of a pupil."""
        _marks[pupil] = f"{subject} {mark}"
        return f"{pupil} has mark {mark} in {subject}"

    @server.tool()
    async def publish_report(pupil: str) -> str:
        """Publish the report of a pupil, with all marks."""
        if pupil not in _marks:
            raise ValueError(f"the report of {pupil} can't be published: it has no marks")
        return f"the report of {pupil} is published: {_marks[pupil]}"


def harbour(server: FastMCP) -> None:
    """Tides, berths and fuel."""

    @server.tool()
    async def tide(day: str) -> str:
        """Say when high tide is."""
        return f"high tide on {day} is at 09:40"

    @server.tool()
    async def assign_berth(ship: str, berth: int) -> str:
        """Assign a berth to a ship."""
        _berths[berth] = ship
        return f"the {ship} lies at berth {berth} from now on"

    @server.tool()
    async def free_berth(berth: int) -> str:
        """Send the ship at a berth away."""
        _berths[berth] = ""
        return f"berth {berth} is free"

    @server.tool()
    async def who_lies_at(berth: int) -> str:
        """Say which ship lies at a berth."""
        return f"the {_berths[berth]} lies at berth {berth}" if _berths.get(berth) else f"no ship lies at berth {berth}"

    @server.tool()
    async def fuel(ship: str, tonnes: int) -> str:
        """Fuel a ship."""
        if tonnes > 300:
            raise ValueError(f"{tonnes} tonnes are more than the tanks of the {ship} hold, which is 300")
        return f"the {ship} was given {tonnes} tonnes"


def bahnhof(server: FastMCP) -> None:
    """Züge, Plätze und Notrufsäulen eines Bahnhofs."""

    @server.tool()
    async def gleis(zug: str) -> str:
        """Sagt, auf welchem Gleis ein Zug abfährt."""
        if zug not in _trains:
            raise ValueError(f"Heute fährt kein Zug {zug}.")
        return f"Der Zug {zug} fährt auf Gleis {_trains[zug]} ab."

    @server.tool()
    async def platz_buchen(zug: str, plaetze: int) -> str:
        """Bucht Plätze in einem Zug."""
        return f"{plaetze} Plätze im Zug {zug} sind gebucht."

    @server.tool()
    async def aushang(titel: str, text: str) -> str:
        """Hängt etwas aus."""
        return f"Der Aushang {titel} hängt: {text}"

    @server.tool()
    async def notruf_pruefen(nummer: int) -> str:
        """Prüft eine Notrufsäule."""
        if nummer == 9:
            raise RuntimeError(f"Die Notrufsäule {nummer} meldet sich seit neun Stunden nicht mehr.")
        return f"Notrufsäule {nummer}: Prüfung ohne Befund, 0 Error, 2 Fehler behoben, kein Not-Halt."


def mercado(server: FastMCP) -> None:
    """Precios y puestos de un mercado."""

    @server.tool()
    async def precio(producto: str) -> str:
        """Dice lo que cuesta un producto."""
        if producto not in _prices:
            raise ValueError(f"Hoy nadie vende {producto}.")
        return f"El kilo de {producto} cuesta {_prices[producto]} euros."

    @server.tool()
    async def apartar(producto: str, cajas: int) -> str:
        """Aparta cajas de un producto."""
        return f"Quedan apartadas {cajas} cajas de {producto}."

    @server.tool()
    async def anotar(titulo: str, texto: str) -> str:
        """Anota algo."""
        return f"Anotado en {titulo}: {texto}"

    @server.tool()
    async def revisar(puesto: int) -> str:
        """Revisa un puesto."""
        return f"Puesto {puesto}: ningún error, no falta nada; 2 llaves no encontradas, 1 caja no válida."


_SERVERS = {
    tools.__name__: tools
    for tools in (archive, depot, travel, printing, clinic, garage, school, harbour, bahnhof, mercado)
}


async def main() -> None:
    running: list[FastMCP] = []
    for argument in sys.argv[1:]:
        name, _, port = argument.partition("=")
        server = FastMCP(name, log_level="CRITICAL", port=int(port))
        _SERVERS[name.partition("_")[0]](server)
        running.append(server)
    await asyncio.gather(*(server.run_streamable_http_async() for server in running))


if __name__ == "__main__":
    asyncio.run(main())
