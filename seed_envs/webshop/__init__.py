"""WebShop: find and buy the product an instruction asks for."""
